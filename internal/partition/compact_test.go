package partition_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/partition"
)

// Every replica compacts its log once it weighs too much, whatever the number of its entries; nothing is
// forgotten, here or after a restart.
func TestTheLogIsCompactedByBytes(t *testing.T) {
	const bound = 64 << 10
	for name, options := range map[string][]func(*cluster){"in memory": nil, "on files": {onFiles}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(cl *cluster) {
				leader := cl.leader()
				used := leader.ask(cl.request("three", "kept"))
				for range 100 {
					var qs []partition.Request
					for i := range 20 {
						qs = append(qs, cl.request("open", fmt.Sprint("somebody-", i)))
					}
					for _, s := range leader.submit(qs...) {
						s.wait()
					}
				}
				pass(time.Second) // none waits, as each gains
				for _, r := range cl.replicas {
					first, err := r.stores.Log.FirstIndex()
					if err != nil || first <= 1 || r.stores.LogBytes() > bound {
						t.Errorf("%s: the log begins at %d and weighs %d bytes, %v", r.id, first, r.stores.LogBytes(), err)
					}
					if r.group.Load().SnapshotIndex() == "0" {
						t.Errorf("%s has no snapshot", r.id)
					}
				}
				for _, r := range cl.replicas {
					r.stop()
				}
				for _, r := range cl.replicas {
					r.start()
				}
				leader = cl.leader()
				again := cl.request("three", "kept")
				if o := leader.ask(again); o.Result != partition.Allowed || o.Answer.Remaining != used.Answer.Remaining-1 {
					t.Errorf("after a restart: %+v, before: %+v", o, used)
				}
			}, append(options, tuned(func(c *partition.Config) { c.LogBytes = bound }))...)
		})
	}
}

// What the log weighs is known after anything that can happen to it, and read back alike at a start.
func TestTheWeightOfALogIsThatOfItsEntries(t *testing.T) {
	b := newBench(t, nil)
	rng := rand.New(rand.NewPCG(5, 5))
	first, last := uint64(1), uint64(0)
	held := map[uint64]uint64{}
	compare := func() {
		t.Helper()
		want := uint64(0)
		for _, bytes := range held {
			want += bytes
		}
		if got := b.LogBytes(); got != want {
			t.Fatalf("entries %d to %d weigh %d bytes, want %d", first, last, got, want)
		}
		most, fitting, behind := rng.Uint64N(want+100), uint64(0), uint64(0)
		for index := last; index >= first && index > 0; index-- {
			if behind += held[index]; behind <= most {
				fitting++
			}
			if got := b.LogFrom(index); got != behind {
				t.Fatalf("from %d on they weigh %d bytes, want %d", index, got, behind)
			}
		}
		if got := b.LogWithin(most); got != fitting {
			t.Fatalf("%d of the newest weigh up to %d bytes, want %d", got, most, fitting)
		}
	}
	for range 300 {
		switch rng.IntN(6) {
		case 0: // compaction
			if last >= first+2 {
				upTo := first + rng.Uint64N(last-first)
				b.snapshot(upTo, 1, 1) // without one the log would have lost its beginning
				b.must(b.Log.DeleteRange(first, upTo))
				for ; first <= upTo; first++ {
					delete(held, first)
				}
			}
		case 1: // truncation
			if last > first {
				from := first + 1 + rng.Uint64N(last-first)
				b.must(b.Log.DeleteRange(from, last))
				for ; last >= from; last-- {
					delete(held, last)
				}
			}
		case 2: // restart
			b.must(b.Close())
			b.open()
		default:
			var logs []*raft.Log
			for range 1 + rng.IntN(5) {
				last++
				l := &raft.Log{Index: last, Term: 1, Type: raft.LogNoop, Data: make([]byte, rng.IntN(3000))}
				held[last] = uint64(len(l.Data) + 4 + 64) // with its checksum
				logs = append(logs, l)
			}
			b.must(b.Log.StoreLogs(logs))
		}
		compare()
	}
}
