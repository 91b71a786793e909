package cluster_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/test/rig"
)

// horizon is how long an allow is replayed at least, in decision time; the rest is for a busy machine.
const horizon = 20*time.Second - 3*time.Second

// settle finds out about all of which the outcome is still unknown.
func (l *ledger) settle(t *testing.T, c *client.Client) {
	t.Helper()
	each(maps.Clone(l.open), func(id string, _ inDoubt) { l.recover(t.Context(), t, c, id) })
}

// verify holds the cluster to what it has told, once nobody asks any more: all unknown outcomes come out, every
// allow that is not too old is given again as it was, and what is used up is what was allowed, to the unit, and
// never more than the limit.
func (l *ledger) verify(t *testing.T, n *nodes, c *client.Client) {
	t.Helper()
	l.settle(t, c)
	asked := l.verifyReplays(t, c)
	l.verifyUsage(t, n, c)
	t.Logf("%d allows, %d of them asked again; %d denials; %d outcomes were unknown at first, and for ever: %v; failed: %v",
		len(l.allows), asked, l.denials, l.doubts, l.lost, l.failed)
	if len(l.allows) == 0 || asked == 0 {
		t.Error("nothing was allowed, or nothing lately: the test tested nothing")
	}
}

// verifyReplays returns how many allows were asked for again.
func (l *ledger) verifyReplays(t *testing.T, c *client.Client) (asked int64) {
	t.Helper()
	newest := map[uint32]int64{}
	for _, a := range l.allows { // one account in each partition
		if _, known := newest[a.partition]; !known {
			newest[a.partition] = usage(t, c, descriptorOf(a.account)).GetDecisionTimeNs()
		}
	}
	began := time.Now()
	var again atomic.Int64
	each(maps.Clone(l.allows), func(id string, was allow) {
		rig.Persist(t, "a replayed allow", func() bool {
			if was.at+int64(horizon) < newest[was.partition]+int64(time.Since(began)) {
				return true // it may be forgotten by now
			}
			a := l.ask(t, c, id, was.account) // and note compares
			if a == nil {
				return false
			}
			again.Add(1)
			if !a.GetReplayed() {
				t.Errorf("id %x of %s was allowed at %d of partition %d; asked again: %v", id, was.account, was.at, was.partition, a)
			}
			return true
		})
	})
	return again.Load()
}

// usage is what has been used of a key; nil if nobody says.
func usage(t *testing.T, c *client.Client, d *quotav1.Descriptor) (u *quotav1.InspectResponse) {
	rig.Persist(t, "what is used up", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), askWithin)
		defer cancel()
		var err error
		u, err = c.Inspect(ctx, &quotav1.InspectRequest{Domain: domain, Descriptor_: d})
		return err == nil
	})
	return u
}

// usedOf is how many units of a key's only limit are used up; -1 if nobody says.
func usedOf(t *testing.T, c *client.Client, d *quotav1.Descriptor) int {
	u := usage(t, c, d)
	if len(u.GetLimits()) != 1 {
		t.Errorf("not one limit: %v", u)
		return -1
	}
	return int(u.GetLimits()[0].GetUsed())
}

func (l *ledger) verifyUsage(t *testing.T, n *nodes, c *client.Client) {
	t.Helper()
	charged := map[string]int{}
	for _, a := range l.allows {
		charged[a.account]++
	}
	for account := range l.lost {
		charged[account] += 0
	}
	each(charged, func(account string, told int) {
		if used := usedOf(t, c, descriptorOf(account)); used < told || used > told+l.lost[account] || used > l.limit {
			t.Errorf("%s: %d are used up, %d were allowed and %d of unknown outcome; the limit is %d", account, used, told, l.lost[account], l.limit)
		}
	})
	for _, account := range []string{"hot-0", "hot-1"} { // by the tool, too
		if used := n.inspect(t, account); used < charged[account] || used > charged[account]+l.lost[account] {
			t.Errorf("%s: quotactl inspect says that %d are used up, %d were allowed", account, used, charged[account])
		}
	}
}

// inspect is what `quotactl inspect` says is used up, whichever node leads the account's partition.
func (n *nodes) inspect(t *testing.T, account string) (used int) {
	t.Helper()
	rig.Eventually(t, "quotactl inspect", func() bool {
		for _, name := range names {
			if !n.Running(name) {
				continue
			}
			status, out := programs.Quotactl(t, slices.Concat([]string{"inspect", "-o", "json", "--server", n.GRPC[name], "--domain", domain,
				"principal=" + account, "api_class=" + apiClass}, n.Flags("gateway"))...)
			var usage struct{ Limits []struct{ Used int } }
			if status == 0 && json.Unmarshal([]byte(out), &usage) == nil && len(usage.Limits) == 1 {
				used = usage.Limits[0].Used
				return true
			}
		}
		return false
	})
	return used
}

// each calls do for all entries, for several at once.
func each[V any](all map[string]V, do func(string, V)) {
	keys := slices.Collect(maps.Keys(all))
	var next atomic.Int64
	var doing sync.WaitGroup
	for range 16 {
		doing.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(keys); i = next.Add(1) - 1 {
				do(keys[i], all[keys[i]])
			}
		})
	}
	doing.Wait()
}
