package partition_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/partition"
)

// What the library, its store and disks do to the unwary, shown twice: with our mitigation, and with it switched off.
// The second half must go wrong: where it doesn't any more, the mitigation may have lost its reason.

// bothWays runs a test with a mitigation, and without.
func bothWays(t *testing.T, test func(t *testing.T, off bool)) {
	t.Helper()
	for _, off := range []bool{false, true} {
		name := "on"
		if off {
			name = "off"
		}
		t.Run(name, func(t *testing.T) { test(t, off) })
	}
}

// storing changes what replicas' stores are made of.
func storing(f func(*replica, *partition.StoreOptions)) func(*cluster) {
	return func(cl *cluster) { cl.storing = f }
}

// oneMore asks for what the limit of three per minute must never give.
func (r *replica) oneMore(off bool) {
	r.cluster.t.Helper()
	want := partition.Denied
	if off {
		want = partition.Allowed
	}
	if o := r.ask(r.cluster.request("three", "u1")); o.Result != want {
		r.cluster.t.Errorf("a fourth of three per minute: %s, want %s", name(o.Result), name(want))
	}
}

// forgetful is a disk that fails one sync and calls the retry a success: the kernel takes the pages for clean that it
// could not write (what is read until then is its cache). They are gone with the power.
type forgetful struct {
	partition.Disk
	mu     sync.Mutex
	armed  bool
	failed uint64 // the first entry of the append that failed
	lost   uint64 // the same, once the retry was a success
}

var errSync = errors.New("fdatasync: input/output error")

func (f *forgetful) StoreLogs(logs []*raft.Log) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.armed:
		f.armed, f.failed = false, logs[0].Index
		return errSync
	case f.failed > 0 && logs[0].Index <= f.failed:
		f.lost, f.failed = f.failed, 0
	}
	return f.Disk.StoreLogs(logs)
}

func (f *forgetful) StoreLog(l *raft.Log) error { return f.StoreLogs([]*raft.Log{l}) }

func (f *forgetful) arm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = true
}

// losePower drops what never was on disk, and returns how many entries that is.
func (f *forgetful) losePower(t testing.TB) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	last, err := f.Disk.LastIndex()
	if err != nil || f.lost == 0 || last < f.lost {
		return 0
	}
	if err := f.Disk.DeleteRange(f.lost, last); err != nil {
		t.Error(err)
	}
	return last - f.lost + 1
}

// A follower's fdatasync fails, the leader sends the entry again, and this time the disk says yes. With the guard the
// first error is the follower's end, and nothing is acknowledged. Without it the allow counts on a disk that doesn't
// have it: power fails there, the leader is gone, and the allow with it.
func TestHazardAFailedSyncIsNotTriedAgain(t *testing.T) {
	bothWays(t, func(t *testing.T, off bool) {
		disks := map[string]*forgetful{}
		inBubble(t, func(cl *cluster) {
			r := cl.leader()
			weak, away := cl.others(r)[0], cl.others(r)[1]
			r.want("three", "u1", partition.Allowed, partition.Allowed)
			cl.isolate(away)
			if off {
				weak.stores.Forgive()
			}
			disks[weak.id].arm()
			o := r.ask(cl.request("three", "u1"))
			if ends := weak.ends(); off != (len(ends) == 0) || !off && !errors.Is(ends[0], errSync) {
				t.Fatalf("the follower ended with %v", ends)
			}
			if off != (o.Result == partition.Allowed) {
				t.Fatalf("got %s", name(o.Result))
			}
			if r.stop(); off == (weak.cutPower(disks[weak.id]) == 0) {
				t.Fatal("what the disk lost is not what was to be tried")
			}
			cl.network.Heal()
			next := cl.leader(weak, away)
			if !off && next.used("three", "u1", 0) == 2 {
				next.want("three", "u1", partition.Allowed) // nobody was told of a third
			}
			next.oneMore(off)
		}, storing(func(r *replica, o *partition.StoreOptions) {
			o.Wrap(func(d partition.Disk) partition.Disk {
				r.disk.file = d
				if disks[r.id] == nil {
					disks[r.id] = &forgetful{Disk: r.disk}
				}
				return disks[r.id]
			})
		}))
	})
}

// cutPower ends a replica and starts it again without what its disk lost.
func (r *replica) cutPower(disk *forgetful) uint64 {
	r.stop()
	n := disk.losePower(r.cluster.t)
	r.start()
	return n
}

// The page of an entry is damaged so that the entry no longer is one of ours but one of Raft's own, which no state
// machine ever sees: one bit. bbolt checks two pages of a file, Raft checks nothing.
func TestHazardADamagedEntryIsNoticedWhenItIsRead(t *testing.T) {
	bothWays(t, func(t *testing.T, off bool) {
		believing := ""
		inBubble(t, func(cl *cluster) {
			r := cl.leader()
			hurt := cl.others(r)[0]
			r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed)
			pass(time.Second) // all know that it is committed
			for _, r := range cl.replicas {
				r.stop()
			}
			index := hurt.damage()
			if off {
				believing = hurt.id
				hurt.start()
				r.start()
				cl.leader()
				pass(time.Second)
				if hurt.group.Load().Leads() || r.group.Load().Transfer(context.Background(), hurt.id) == nil {
					cl.leader(hurt).oneMore(true)
					return
				}
				t.Fatal("the damaged replica does not lead")
			}
			if failed := hurt.tryStart(); failed == nil {
				t.Fatal("it starts on a damaged log")
			}
			if ends := hurt.ends(); len(ends) != 1 || !errors.Is(ends[0], partition.ErrDamaged) || !bytes.Contains([]byte(ends[0].Error()), fmt.Appendf(nil, "entry %d", index)) {
				t.Errorf("ended with %v, damaged is entry %d", ends, index)
			}
			for _, r := range cl.others(hurt) {
				r.start()
			}
			cl.leader().oneMore(false)
		}, onFiles, storing(func(r *replica, o *partition.StoreOptions) {
			o.Wrap(func(d partition.Disk) partition.Disk {
				if r.disk.file, r.disk.onFile = d, true; r.id == believing {
					return believer{r.disk}
				}
				return r.disk
			})
		}))
	})
}

// believer is a disk that is right whatever it says.
type believer struct{ partition.Disk }

func (b believer) GetLog(index uint64, l *raft.Log) error {
	err := b.Disk.GetLog(index, l)
	if err == nil {
		partition.Reseal(l)
	}
	return err
}

// tryStart starts the replica's process, which may end at once.
func (r *replica) tryStart() (failed any) {
	defer func() {
		if failed = recover(); failed == nil {
			return
		}
		r.must(errors.Join(r.link.Close(), r.stores.Close()))
		r.cancel()
		r.ticker.Wait()
	}()
	r.start()
	return nil
}

// damage changes, in the pages of the replica's log, the type of the first batch of checks. It returns its index.
func (r *replica) damage() (index uint64) {
	t := r.cluster.t
	t.Helper()
	path := filepath.Join(r.cluster.dir, r.id, "raft.db")
	store, err := raftboltdb.New(raftboltdb.Options{Path: path})
	r.must(err)
	for i := uint64(1); index == 0; i++ {
		var l raft.Log
		r.must(store.GetLog(i, &l))
		if h, err := fsm.ParseHeader(l.Data); err == nil && h.Kind == fsm.KindBatch {
			index = i
		}
	}
	r.must(store.Close())
	db, err := bbolt.Open(path, 0o600, nil)
	r.must(err)
	var value []byte
	r.must(db.View(func(tx *bbolt.Tx) error {
		value = bytes.Clone(tx.Bucket([]byte("logs")).Get(binary.BigEndian.AppendUint64(nil, index)))
		return nil
	}))
	r.must(db.Close())
	field := bytes.Index(value, []byte("Type"))
	if field < 0 || value[field+4] != byte(raft.LogCommand) {
		t.Fatalf("entry %d has no type where it is looked for: %x", index, value)
	}
	content, err := os.ReadFile(path)
	r.must(err)
	if bytes.Count(content, value) == 0 {
		t.Fatal("the entry is not in the file")
	}
	damaged := bytes.Clone(value)
	damaged[field+4] ^= byte(raft.LogNoop)
	r.must(os.WriteFile(path, bytes.ReplaceAll(content, value, damaged), 0o600))
	return index
}

// An entry that was stamped in an earlier term gets into the log late, with the time of a clock that counted an outage
// which the partition's time did not. Apply refuses it by its term. Were it taken, decision time would leap, and a
// minute's events would have left after a few seconds.
func TestHazardAnEntryOfAnEarlierTermIsRefused(t *testing.T) {
	bothWays(t, func(t *testing.T, off bool) {
		options := []func(*cluster){}
		if off {
			options = append(options, tuned(func(c *partition.Config) { c.Stores.Log = termless{c.Stores.Log} }))
		}
		inBubble(t, func(cl *cluster) {
			old := cl.leader()
			term := old.group.Load().Status().Term
			old.stop()
			next := cl.leader()
			begun := cl.now()
			next.want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed)
			g := next.group.Load()
			late := fsm.Header{Term: term, Time: g.Status().Now + int64(time.Hour), Seq: 1 << 40}
			if g.Status().Term == term {
				t.Fatal("the term is the same")
			}
			if err := g.ProposeRaw(fsm.Tick(late)); err != nil {
				t.Fatal(err)
			}
			pass(5 * time.Second)
			if leapt := g.Status().Now >= late.Time; leapt != off {
				t.Errorf("decision time is %d, the late entry was stamped with %d", g.Status().Now, late.Time)
			}
			next.oneMore(off)
			if took := time.Duration(cl.now() - begun); took > 50*time.Second {
				t.Errorf("all of it took %v: nothing is shown", took)
			}
		}, options...)
	})
}

// What the library calls applied it has handed over. What a replica says that it has applied, it has.
func TestHazardAppliedIsWhatTheMachineHasApplied(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		g := r.group.Load()
		held := make(chan struct{})
		first := cl.call(cl.request("three", "u1"))
		first.Done = func(*partition.Call) { <-held; first.answers.Add(1); close(first.done) } // holds up the apply
		g.Submit(first.Call)
		pass(time.Second)
		before := g.Status().Applied
		second := r.submit(cl.request("three", "u1"))[0]
		pass(time.Second)
		if handed := g.HandedOver(); handed <= before {
			t.Fatalf("entry %d is handed over, and %d applied: nothing is tried", handed, before)
		}
		if now := g.Status().Applied; now != before || second.answers.Load() != 0 {
			t.Errorf("entry %d counts as applied, %d was the last", now, before)
		}
		close(held)
		if o := second.wait(); o.Result != partition.Allowed || g.Status().Applied <= before {
			t.Errorf("afterwards: %s, entry %d is applied", name(o.Result), g.Status().Applied)
		}
	})
}

// termless is a log whose entries are stamped in the term that they are logged in, whatever they say.
type termless struct{ raft.LogStore }

func (s termless) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

func (s termless) StoreLogs(logs []*raft.Log) error {
	for _, l := range logs {
		if h, err := fsm.ParseHeader(l.Data); l.Type == raft.LogCommand && err == nil && h.Term != l.Term {
			restamp(l.Data, l.Term)
		}
	}
	return s.LogStore.StoreLogs(logs)
}

// restamp gives an entry another term, and the checksum of that.
func restamp(e []byte, term uint64) {
	table := crc32.MakeTable(crc32.Castagnoli)
	binary.LittleEndian.PutUint64(e[16:], term)
	binary.LittleEndian.PutUint32(e[4:], crc32.Update(crc32.Checksum(e[:4], table), table, e[8:]))
}
