package clock_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/clock"
)

// A node lives on true time. Of its two oscillators one is within 500 ppm, and the other does what
// it likes: it drifts, jumps and steps back. log is what its disk holds.
type node struct {
	source      clock.Manual
	good, bad   *oscillator
	accumulator *clock.Accumulator
	held        clock.Held
	term        clock.TermClock
	leads       uint64 // the term in which this process led last
	log         []entry
	alive       bool
}

// entry is one stamped entry: time is what it says, truly is when it was stamped. Term and index name
// it, as they do in Raft.
type entry struct {
	time  int64
	truly int64
	term  uint64
	index int
}

// oscillator turns true time into what a clock reads, in whole nanoseconds as clocks do.
type oscillator struct {
	ppb  int64 // fast by so many parts in 10^9
	read func() int64
	move func(time.Duration)
	base int64
}

func (o *oscillator) to(truly int64) {
	// truly * ppb stays far below 2^63 for the hours that a schedule lasts.
	o.move(time.Duration(o.base + truly + truly/1e9*o.ppb + truly%1e9*o.ppb/1e9 - o.read()))
}

// TestDecisionTimeNeverAdvancesMoreThanTrueTime plays random schedules of reads, freezes, restarts,
// cuts, elections and truncations, and compares every pair of entries that were agreed on.
//
// A read hides less than a nanosecond of each clock, and so may a stamp: hence the 2 ns.
func TestDecisionTimeNeverAdvancesMoreThanTrueTime(t *testing.T) {
	rng := seeded(t)
	most := int64(0)
	for range 300 {
		agreed := schedule(rng)
		saved := int64(-1 << 62) // the most that true time has been ahead of decision time so far
		for i, e := range agreed {
			if i > 0 {
				e.time = max(e.time, agreed[i-1].time) // apply's clamp
			}
			agreed[i] = e
			if ahead := e.truly - e.time; ahead < saved-2 {
				t.Fatalf("entry %d advanced %d ns more than true time since an earlier one", i, saved-ahead)
			}
			saved = max(saved, e.truly-e.time)
		}
		if n := len(agreed); n > 0 {
			most = max(most, agreed[n-1].time)
		}
	}
	if most < int64(time.Minute) {
		t.Errorf("the longest schedule got to %v only: the property was hardly tried", time.Duration(most))
	}
}

// schedule returns the entries, in log order, that a majority stored.
func schedule(rng *rand.Rand) []entry {
	nodes, truly := []*node{newNode(rng), newNode(rng), newNode(rng)}, int64(0)
	committed, term, leader := 0, uint64(0), nodes[0]
	var agreed []entry
	for range 400 {
		truly += pause(rng)
		for _, n := range nodes {
			n.good.to(truly)
			n.bad.to(truly)
			if n.alive && rng.IntN(8) > 0 { // else it is frozen for this step
				n.accumulator.Read()
			}
		}
		n := nodes[rng.IntN(len(nodes))]
		switch what := rng.IntN(20); {
		case what == 0:
			n.alive = false
		case what == 1:
			n.start()
		case what == 2:
			n.bad.base += rng.Int64N(4e9) - 2e9
			n.bad.ppb = rng.Int64N(1e9) - 5e8
		case what == 3 && n.electable(nodes):
			leader, term = n, term+1
			n.leads = term
			elapsed := n.accumulator.Elapsed()
			n.term = clock.TermClock{Time: n.held.FirstEntry(elapsed), At: elapsed}
			n.append(entry{n.term.Time, truly, term, len(n.log)})
			agreed = replicate(rng, nodes, leader, &committed, agreed)
		case leader.alive && leader.leads == term && term > 0:
			at := leader.term.Stamp(leader.accumulator.Elapsed())
			leader.append(entry{at, truly, term, len(leader.log)})
			agreed = replicate(rng, nodes, leader, &committed, agreed)
		}
	}
	return agreed
}

// pause is mostly short, at times an outage, and often of a length that rounds badly.
func pause(rng *rand.Rand) int64 {
	switch rng.IntN(10) {
	case 0:
		return rng.Int64N(100e9)
	case 1:
		return rng.Int64N(3)
	case 2:
		return rng.Int64N(4000)
	default:
		return rng.Int64N(1200e6)
	}
}

func newNode(rng *rand.Rand) *node {
	n := &node{}
	monotonic := &oscillator{read: n.source.Monotonic, move: n.source.AdvanceMonotonic, base: rng.Int64N(1e12)}
	raw := &oscillator{read: n.source.Raw, move: n.source.AdvanceRaw, base: rng.Int64N(1e12)}
	n.good, n.bad = monotonic, raw
	if rng.IntN(2) == 0 {
		n.good, n.bad = raw, monotonic
	}
	n.good.ppb = []int64{500_000, -500_000, rng.Int64N(1_000_001) - 500_000}[rng.IntN(3)]
	n.bad.ppb = n.good.ppb + []int64{0, rng.Int64N(2_000_000)}[rng.IntN(2)]
	n.start()
	return n
}

// start is a process start: nothing is kept but the log.
func (n *node) start() {
	n.accumulator, n.alive, n.leads = clock.New(&n.source), true, 0
	n.readBack()
}

// electable is Raft's rule: a majority is up and has no newer log.
func (n *node) electable(nodes []*node) bool {
	if !n.alive {
		return false
	}
	votes := 0
	for _, v := range nodes {
		if v.alive && (v.lastTerm() < n.lastTerm() || v.lastTerm() == n.lastTerm() && len(v.log) <= len(n.log)) {
			votes++
		}
	}
	return 2*votes > len(nodes)
}

func (n *node) lastTerm() uint64 {
	if len(n.log) == 0 {
		return 0
	}
	return n.log[len(n.log)-1].term
}

// readBack is what the store does after a start and after a truncation.
func (n *node) readBack() {
	n.held = clock.Held{At: n.accumulator.Elapsed()}
	if k := len(n.log); k > 0 {
		n.held.Time = n.log[k-1].time
	}
}

func (n *node) append(e entry) {
	n.log = append(n.log, e)
	n.held = clock.Held{Time: e.time, At: n.accumulator.Elapsed()}
}

// replicate brings a random part of the others to the leader's log; whatever a majority then holds
// is agreed on. A follower that catches up stores the entries it lacks now, however old they are.
func replicate(rng *rand.Rand, nodes []*node, leader *node, committed *int, agreed []entry) []entry {
	holders := 1
	for _, n := range nodes {
		if n == leader || !n.alive || rng.IntN(3) == 0 {
			continue
		}
		holders++
		same := 0
		for same < len(n.log) && same < len(leader.log) && n.log[same] == leader.log[same] {
			same++
		}
		if same < len(n.log) {
			n.log = n.log[:same]
			n.readBack()
		}
		for _, e := range leader.log[same:] {
			n.append(e)
		}
	}
	if holders*2 > len(nodes) {
		agreed = append(agreed, leader.log[*committed:]...)
		*committed = len(leader.log)
	}
	return agreed
}
