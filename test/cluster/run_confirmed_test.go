package cluster_test

import (
	"context"
	"testing"
	"time"

	"github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/test/rig"
)

// observer asks nodes what they confirm, over connections that stay. It ends with the test.
func (n *nodes) observer(t *testing.T, names ...string) func(time.Duration) (*client.Enforced, error) {
	t.Helper()
	addresses := make([]string, len(names))
	for i, name := range names {
		addresses[i] = n.GRPC[name]
	}
	admin, err := client.NewAdmin(addresses, n.TLS(t, "reader"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() }) // nothing is in flight
	return func(d time.Duration) (*client.Enforced, error) {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		return admin.Enforced(ctx)
	}
}

// TestADeposedLeaderConfirmsNothing: it is asked while it stands still, and others have been elected, and enforce another
// set, when it goes on. What it tells, if anything, is of the present.
func TestADeposedLeaderConfirmsNothing(t *testing.T) {
	t.Parallel()
	n := found(t, rig.Shape{Policies: hourlyText(3), Partitions: 1})
	version := uint64(1)
	for range 3 {
		frozen := n.Leader(t, 0)
		enforced, others := n.observer(t, frozen), n.observer(t, rig.Others(frozen)...)
		rig.Eventually(t, "it to confirm what it leads", func() bool {
			e, err := enforced(3 * time.Second)
			return err == nil && e.Versions[0].GetNumber() == version
		})
		n.Process[frozen].Freeze(t)
		asked := make(chan *client.Enforced, 1)
		go func() {
			e, _ := enforced(10 * time.Second) // nil, where it says nothing
			asked <- e
		}()
		version++
		n.Enforce(t, hourlyText(3+int(version)))
		rig.Eventually(t, "the others to confirm the new set", func() bool {
			e, err := others(3 * time.Second)
			return err == nil && e.Versions[0].GetNumber() == version
		})
		n.Process[frozen].Thaw(t)
		e := <-asked
		if e == nil {
			t.Fatal("it was told nothing: no question was on its way to the frozen one")
		}
		if v, confirmed := e.Versions[0]; confirmed && v.GetNumber() != version {
			t.Errorf("%s confirms version %v, and %d is in force", frozen, v, version)
		}
	}
}
