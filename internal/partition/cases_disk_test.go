package partition_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/partition"
)

// offered is a snapshot store that counts what it takes and hands out, takes its time for the one, or waits for a
// gate, and changes the other while change is set.
type offered struct {
	raft.SnapshotStore
	change atomic.Pointer[func([]byte)]
	taken  atomic.Int64
	given  atomic.Int64
	delay  atomic.Int64 // of each that it takes
	gate   atomic.Pointer[chan struct{}]
}

func (o *offered) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, t raft.Transport) (raft.SnapshotSink, error) {
	o.taken.Add(1)
	if d := o.delay.Load(); d > 0 {
		pass(time.Duration(d))
	}
	if gate := o.gate.Load(); gate != nil {
		<-*gate
	}
	return o.SnapshotStore.Create(v, index, term, c, ci, t)
}

func (o *offered) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	o.given.Add(1)
	meta, r, err := o.SnapshotStore.Open(id)
	change := o.change.Load()
	if err != nil || change == nil {
		return meta, r, err
	}
	b, err := io.ReadAll(r)
	(*change)(b)
	return meta, io.NopCloser(bytes.NewReader(b)), errors.Join(err, r.Close())
}

// offering puts such a store under each replica at its next start, by the replica's id.
func offering(stores map[string]*offered) func(*cluster) {
	return tuned(func(c *partition.Config) {
		stores[c.ID] = &offered{SnapshotStore: c.Stores.Snapshots}
		c.Stores.Snapshots = stores[c.ID]
	})
}

// lag stops a replica and lets the others go on until only a snapshot can bring it back.
func (cl *cluster) lag(r *replica) *replica {
	cl.t.Helper()
	r.want("three", "u1", partition.Allowed)
	behind := cl.others(r)[0]
	behind.stop()
	r.want("three", "u1", partition.Allowed, partition.Allowed)
	for i := range 200 {
		r.want("open", fmt.Sprint("u", i%50), partition.Allowed)
	}
	if err := r.group.Load().Compact(); err != nil {
		cl.t.Fatal(err)
	}
	return behind
}

// DISK-09, DISK-18: what a leader sends for a snapshot and isn't one, by damage on the way or because another
// version of the software wrote it, is refused whole. The replica stands on what it had, or ends and says why; it
// applies nothing on top. The others go on, and one that didn't end catches up once it is sent a sound one.
func TestDISK09DISK18ASnapshotThatIsNoneIsNeverStoodOn(t *testing.T) {
	for _, tc := range []struct {
		what   string
		change func([]byte)
		ends   string
	}{
		{"a later version", func(b []byte) { b[7] += 2 }, `it begins with "QUORATE\x04", this software reads "QUORATE\x02" and "QUORATE\x03"`},
		{"a later level", func(b []byte) { b[7]++ }, "a later version of the software wrote it"},
		{"a byte of its beginning", func(b []byte) { b[20] ^= 1 }, "checksum"},
		{"a byte of its end", func(b []byte) { b[len(b)-1] ^= 1 }, ""},
	} {
		for _, files := range []bool{false, true} {
			t.Run(fmt.Sprint(tc.what, ", files ", files), func(t *testing.T) {
				stores := map[string]*offered{}
				inBubble(t, func(cl *cluster) {
					r := cl.leader()
					behind := cl.lag(r)
					stores[r.id].change.Store(&tc.change)
					behind.start()
					had := behind.group.Load().Status()
					pass(10 * time.Second)
					if stores[behind.id].taken.Load() == 0 {
						t.Fatal("no snapshot was sent")
					}
					// Or it can't be read any more.
					if s := behind.group.Load().Status(); s.Level > 0 && (s.Applied != had.Applied || s.Hash != had.Hash) {
						t.Fatalf("it stood at entry %d, and now at %d", had.Applied, s.Applied)
					}
					r.want("three", "u1", partition.Denied)
					stores[r.id].change.Store(nil)
					if tc.ends != "" {
						if ends := behind.ends(); len(ends) != 1 || !strings.Contains(ends[0].Error(), tc.ends) {
							t.Errorf("ended with %v, want %s", ends, tc.ends)
						}
						return
					}
					pass(30 * time.Second)
					cl.same()
					if ends := behind.ends(); len(ends) > 0 {
						t.Errorf("ended with %v", ends)
					}
				}, offering(stores), func(cl *cluster) { cl.files = files })
			})
		}
	}
}

// DISK-11: a replica that was away through many compactions, and whose disk is slow, catches up while the others are
// kept busy, and with one snapshot or two: what came behind is still in the leader's log when the replica is through
// with it, though the leader has compacted meanwhile. The leader's log stays within its bound.
func TestDISK11AReplicaThatWasLongAwayCatchesUpUnderLoad(t *testing.T) {
	const bound = 256 << 10
	stores := map[string]*offered{}
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		behind := cl.others(r)[0]
		behind.stop()
		busy(r, 40*time.Second, func() bool { return false })
		if n := stores[r.id].taken.Load(); n < 10 {
			t.Fatalf("%d compactions while it was away: hardly tried", n)
		}
		nearly := func() bool { return r.stores.LogBytes() > bound-bound/8 }
		busy(r, 10*time.Second, func() bool { return !nearly() })
		busy(r, 10*time.Second, nearly)
		taken, given := stores[r.id].taken.Load(), stores[r.id].given.Load()
		behind.disk.slow(40 * time.Millisecond)
		behind.start()
		stores[behind.id].delay.Store(int64(500 * time.Millisecond))
		// What its slow disk and the leader have in hand at any moment, it is always behind.
		const inHand = 64
		caught := func() bool { return behind.group.Load().Status().Applied+inHand > r.group.Load().LastIndex() }
		if busy(r, 30*time.Second, caught); !caught() {
			t.Fatalf("not within 30 s: it is at entry %d of %d", behind.group.Load().Status().Applied, r.group.Load().LastIndex())
		}
		if n := stores[r.id].given.Load() - given; n < 1 || n > 2 {
			t.Errorf("it was sent %d snapshots to catch up", n)
		}
		if n := stores[r.id].taken.Load() - taken; n == 0 {
			t.Error("the leader compacted nothing meanwhile: hardly tried")
		}
		if n := r.stores.LogBytes(); n > bound {
			t.Errorf("the leader's log weighs %d bytes", n)
		}
		behind.disk.slow(0)
		cl.same()
	}, offering(stores), func(cl *cluster) {
		offer := cl.tune
		cl.tune = func(c *partition.Config) { offer(c); c.LogBytes = bound }
	})
}

// busy keeps a leader busy for some time, or until it is enough.
func busy(r *replica, d time.Duration, enough func() bool) {
	for begun := r.cluster.now(); r.cluster.now()-begun < int64(d) && !enough(); pass(20 * time.Millisecond) {
		for i := range 20 {
			r.submit(r.cluster.request("open", fmt.Sprint("somebody-", i)))
		}
	}
}
