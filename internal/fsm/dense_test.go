package fsm_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/fsm"
)

// The bound is set in logical bytes, and the heap follows it through every past: here the
// bound is filled with keys of one length, all of them expire but one, which stays in
// use, and it is filled again with keys of the next length.
func TestHeapStaysNearTheBoundWhateverTheLengthsOfKeys(t *testing.T) {
	const bound = 1 << 20
	s := settings()
	s.Bound, s.DomainBound, s.Horizon = bound, bound, 2*second
	base := heap()
	r := start(t, s, perUser(rolling(100, minute)))
	var hot []string
	phases, steps := 0, 6 // lengths to a doubling, about
	if raceEnabled {
		steps = 2
	}
	for size := 16; size <= 1024; size += size/steps + 1 {
		hot = append(hot, r.fillWith(size))
		most := heap() - base
		for range 3 { // the keys in use outlive all others
			r.at(r.now + minute/2)
			for _, u := range hot {
				r.want(fsm.VerdictAllow, r.late(1, desc("user="+u)))
			}
			r.settle()
		}
		if keys := r.m.Memory().Keys; keys != len(hot) {
			t.Fatalf("%d keys are left, want %d", keys, len(hot))
		}
		if most = max(most, heap()-base); most > 3*bound {
			t.Fatalf("with keys of %d bytes, after %d other lengths: %d bytes of heap, the bound is %d", size, phases, most, bound)
		}
		phases++
	}
	runtime.KeepAlive(r)
}

// fillWith asks for ever more users with names of so many bytes until there is no memory
// for another, and returns the first.
func (r *replica) fillWith(size int) (first string) {
	name := func(i int) string { return fmt.Sprintf("%0*d", size, i) }
	for from := 0; ; from += 256 {
		var checks []*fsm.Check
		for i := range 256 {
			checks = append(checks, r.late(1, desc("user="+name(from+i))))
		}
		r.log = nil
		for _, a := range r.decide(checks...) {
			if a.Verdict == fsm.VerdictMemory {
				return name(0)
			}
		}
		r.now++
	}
}

// Keys whose logs were long and are short again give their memory back, though they stay
// in use.
func TestLogsThatWereLongGiveTheirMemoryBack(t *testing.T) {
	const keys, events = 20, 1000
	s := settings()
	s.Horizon = 2
	r := start(t, s, perUser(rolling(2*events, 10*minute)))
	ask := func() {
		var checks []*fsm.Check
		for i := range keys {
			checks = append(checks, r.late(1, user(i)))
		}
		for _, a := range r.decide(checks...) {
			if a.Verdict != fsm.VerdictAllow {
				t.Fatalf("at %d: %s", r.now, words[a.Verdict])
			}
		}
	}
	for range events {
		r.at(r.now + second/10)
		ask()
	}
	if n := r.m.BlockBytes(); n < keys*events*4 {
		t.Fatalf("%d keys with %d events take %d bytes", keys, events, n)
	}
	for range 4 {
		r.at(r.now + 8*minute)
		ask()
		r.settle()
	}
	if n, counted := r.m.BlockBytes(), r.m.Memory().Bytes; n > 5000+3*int(counted) {
		t.Errorf("%d bytes for keys that count for %d", n, counted)
	}
	clone(t, r.m)
}

// Blocks move together while keys expire: not an answer, not a hash knows of it, and a
// snapshot that is being written neither.
func TestWhereBlocksLieIsInvisible(t *testing.T) {
	s := settings()
	s.Horizon = 2
	r := start(t, s, perUser(rolling(3, minute)))
	name := func(i int) string { return strings.Repeat("u", 10+i%3*8) + fmt.Sprintf("%05d", i) }
	const n = 3000
	ask := func(from, step int) {
		var checks []*fsm.Check
		for i := from; i < n; i += step {
			if checks = append(checks, r.late(1, desc("user="+name(i)))); len(checks) == fsm.MaxChecks {
				break
			}
		}
		for i, a := range r.decide(checks...) {
			if a.Verdict != fsm.VerdictAllow {
				t.Fatalf("%d: %s", i, words[a.Verdict])
			}
		}
	}
	for from := 0; from < n; from += fsm.MaxChecks {
		ask(from, 1)
	}
	full := r.m.BlockBytes()
	r.at(minute / 2)
	ask(0, 7) // these stay
	heir := clone(t, r.m)
	frozen := r.m.Snapshot()
	before := written(t, r.m.Snapshot())
	image := make(chan []byte)
	go func() { image <- written(t, frozen) }()
	from := len(r.log)
	r.at(minute).settle()
	if string(<-image) != string(before) {
		t.Error("a snapshot changed while blocks moved")
	}
	if now := r.m.BlockBytes(); now > full/2 {
		t.Errorf("%d of %d bytes are left for a seventh of the keys", now, full)
	}
	r.at(minute + second)
	ask(0, 7)
	ask(0, 7)
	for _, e := range r.log[from:] {
		apply(t, heir, e)
	}
	if r.m.StateHash() != heir.StateHash() || string(written(t, r.m.Snapshot())) != string(written(t, heir.Snapshot())) {
		t.Error("it differs from one that started in between")
	}
	for i := 0; i < n; i += 7 {
		r.want(fsm.VerdictDeny, r.late(1, desc("user="+name(i))))
	}
}
