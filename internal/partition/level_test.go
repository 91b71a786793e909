package partition_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/partition"
)

// levels are what members have said that they have, and how often a leader asked.
type levels struct {
	mu    sync.Mutex
	said  map[string]uint64
	asked map[string]int
}

func (l *levels) of(id string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[id]++
	return l.said[id]
}

// says has a member say a level; 0: it is silent.
func (l *levels) says(id string, level uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said[id] = level
	clear(l.asked)
}

// upTo has replicas know a level to come, but for those that are named.
func upTo(newest uint64, l *levels, but ...string) func(*cluster) {
	return tuned(func(cfg *partition.Config) {
		cfg.Newest, cfg.Said = newest, l.of
		for _, id := range but {
			if cfg.ID == id {
				cfg.Newest = fsm.NewestLevel
			}
		}
	})
}

func saidBy(level uint64, ids ...string) *levels {
	l := &levels{said: map[string]uint64{}, asked: map[string]int{}}
	for _, id := range ids {
		l.said[id] = level
	}
	return l
}

// stays holds all replicas to a level for as long as it takes a leader to ask every other member twice.
func (l *levels) stays(cl *cluster, level uint64) {
	cl.t.Helper()
	lead := cl.leader()
	for range 1000 {
		pass(20 * time.Millisecond)
		for _, r := range cl.replicas {
			if now := r.group.Load().Level(); now != level {
				cl.t.Fatalf("%s is at level %d, want %d", r.id, now, level)
			}
		}
		l.mu.Lock()
		asked := l.asked[cl.others(lead)[0].id] > 1 && l.asked[cl.others(lead)[1].id] > 1
		l.mu.Unlock()
		if asked {
			return
		}
	}
	cl.t.Fatal("no leader asked who has which level")
}

// K8S-10: a leader with a newer level proposes it only once every member has said that it has it. Meanwhile, and
// afterwards, checks are decided.
func TestK8S10NoLevelIsRaisedBeforeEveryMemberHasSaidIt(t *testing.T) {
	l := saidBy(3)
	inBubble(t, func(cl *cluster) {
		others := cl.others(cl.leader())
		l.says(others[0].id, 3)
		other := others[1].id
		for _, level := range []uint64{0, 1} {
			l.says(other, level)
			l.stays(cl, 1)
			cl.leader().want("many", "u1", partition.Allowed)
		}
		l.says(other, 2)
		pass(10 * time.Second)
		l.stays(cl, 2) // what all have, not what this leader has
		cl.leader().want("many", "u1", partition.Allowed)
		l.says(other, 3)
		pass(10 * time.Second)
		before := cl.leader().group.Load().LastIndex()
		for _, r := range cl.replicas {
			if level := r.group.Load().Status().Level; level != 3 {
				t.Errorf("%s is at level %d", r.id, level)
			}
		}
		pass(20 * time.Second)
		if now := cl.leader().group.Load().LastIndex(); now > before+8 { // ticks, a checkpoint
			t.Errorf("%d entries in 20 s: it is raised again and again", now-before)
		}
		cl.leader().want("many", "u1", partition.Allowed)
		cl.same()
	}, upTo(3, l))
}

// Who joins and doesn't vote yet is to read the log as well: nothing is raised before it has said the level.
func TestK8S10ALearnerCountsForTheLevelToo(t *testing.T) {
	l := saidBy(0)
	inBubble(t, func(cl *cluster) {
		if err := cl.leader().group.Load().AddLearner("d"); err != nil {
			t.Fatal(err)
		}
		for _, id := range cl.names {
			l.says(id, 2)
		}
		for _, level := range []uint64{0, 1} {
			l.says("d", level)
			l.stays(cl, 1)
		}
		l.says("d", 2)
		pass(10 * time.Second)
		for _, r := range cl.replicas {
			if level := r.group.Load().Level(); level != 2 {
				t.Errorf("%s is at level %d", r.id, level)
			}
		}
	}, upTo(2, l))
}

// A member that said a level and went back to older software stops at the entry. The others go on, and its folder is
// refused before anything is done to it, until the newer software is there.
func TestAMemberThatWentBackStopsWhereTheLevelIsRaised(t *testing.T) {
	l := saidBy(2, "a", "b", "c")
	inBubble(t, func(cl *cluster) {
		back := cl.replicas[2]
		if lead := cl.leader(); lead == back {
			if err := back.group.Load().Transfer(context.Background(), "a"); err != nil {
				t.Fatal(err)
			}
		}
		cl.leader(cl.replicas[:2]...).want("three", "u1", partition.Allowed)
		for range 3000 {
			if len(back.ends()) > 0 {
				break
			}
			pass(10 * time.Millisecond)
		}
		if ends := back.ends(); len(ends) != 1 || !errors.Is(ends[0], fsm.ErrLevel) {
			t.Fatalf("it ended with %v", ends)
		}
		back.stop()
		lead := cl.leader(cl.replicas[:2]...)
		lead.want("three", "u1", partition.Allowed, partition.Allowed, partition.Denied)
		folder := filepath.Join(cl.dir, back.id)
		if _, err := partition.InspectUpTo(folder, 1); !errors.Is(err, partition.ErrLaterFormat) {
			t.Errorf("inspected as level 1: %v", err)
		}
		if _, err := partition.InspectUpTo(folder, 2); err != nil {
			t.Errorf("inspected as level 2: %v", err)
		}
		cl.tune = func(cfg *partition.Config) { cfg.Newest = 2 }
		back.start()
		cl.same()
		if level := back.group.Load().Level(); level != 2 {
			t.Errorf("back again it is at level %d", level)
		}
	}, onFiles, upTo(2, l, "c"))
}
