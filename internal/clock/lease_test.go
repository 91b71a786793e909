package clock_test

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/clock"
)

const leaseLength = 500 * time.Millisecond

func ms(n int64) int64 { return n * int64(time.Millisecond) }

func TestLeaseNeedsAMajorityInThisTerm(t *testing.T) {
	type ack struct {
		peer   string
		term   uint64
		sentAt int64
	}
	three, five := []string{"a", "b", "c"}, []string{"a", "b", "c", "d", "e"}
	for _, tc := range []struct {
		name   string
		voters []string
		term   uint64
		acks   []ack
		now    int64
		want   bool
	}{
		{"nobody answered", three, 7, nil, ms(1000), false},
		{"one of two others answered", three, 7, []ack{{"b", 7, ms(1000)}}, ms(1400), true},
		{"to the last nanosecond", three, 7, []ack{{"b", 7, ms(1000)}}, ms(1500) - 1, true},
		{"and not one more", three, 7, []ack{{"b", 7, ms(1000)}}, ms(1500), false},
		{"an old answer after a new one takes nothing away", three, 7, []ack{{"b", 7, ms(1300)}, {"b", 7, ms(1100)}}, ms(1700), true},
		{"an answer of another term", three, 7, []ack{{"b", 6, ms(1000)}}, ms(1100), false},
		{"its own answer counts once", three, 7, []ack{{"a", 7, ms(1000)}}, ms(1100), false},
		{"a stranger's answer", three, 7, []ack{{"x", 7, ms(1000)}}, ms(1100), false},
		{"a request sent before the term began", three, 7, []ack{{"b", 7, ms(999)}}, ms(1100), false},
		{"two of five are no majority", five, 7, []ack{{"b", 7, ms(1000)}}, ms(1100), false},
		{"the same one twice is one", five, 7, []ack{{"b", 7, ms(1000)}, {"b", 7, ms(1010)}}, ms(1100), false},
		{"the slower of the two that are needed", five, 7, []ack{{"b", 7, ms(1400)}, {"d", 7, ms(1000)}}, ms(1500), false},
		{"more answers than needed: the newest count", five, 7, []ack{{"b", 7, ms(1000)}, {"d", 7, ms(1400)}, {"e", 7, ms(1300)}}, ms(1799), true},
		{"the only voter", []string{"a"}, 7, nil, ms(99999), true},
		{"leads nothing", []string{"a"}, 0, nil, ms(1000), false},
		{"two voters: both", []string{"a", "b"}, 7, []ack{{"b", 7, ms(1000)}}, ms(1100), true},
		{"not a voter itself: one of two is no majority", []string{"b", "c"}, 7, []ack{{"b", 7, ms(1000)}}, ms(1100), false},
		{"not a voter itself: both are", []string{"b", "c"}, 7, []ack{{"b", 7, ms(1000)}, {"c", 7, ms(1000)}}, ms(1100), true},
		{"no voters", nil, 7, nil, ms(1000), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var source clock.Manual
			source.Advance(time.Second)
			l := clock.NewLease(&source, leaseLength, "a", tc.voters)
			l.Reset(tc.term)
			for _, a := range tc.acks {
				l.Ack(a.peer, a.term, a.sentAt)
			}
			if got := l.Valid(tc.now); got != tc.want {
				t.Errorf("Valid(%v) = %v, want %v", time.Duration(tc.now), got, tc.want)
			}
		})
	}
}

func TestLeaseIsNotValidBeforeATermBegins(t *testing.T) {
	l := clock.NewLease(&clock.Manual{}, leaseLength, "a", []string{"a", "b", "c"})
	l.Ack("b", 0, 0)
	l.Ack("b", 1, 0)
	if l.Valid(0) {
		t.Error("valid without a term")
	}
}

// A leader that sees a gap was away for it knows not how long: answers to what it sent before prove
// nothing about now, also where they arrive only afterwards.
func TestAfterAGapAMajorityMustAnswerAgain(t *testing.T) {
	var source clock.Manual
	l := clock.NewLease(&source, leaseLength, "a", []string{"a", "b", "c"})
	l.Reset(3)
	sentBefore := source.Monotonic()
	l.Ack("b", 3, sentBefore)

	source.AdvanceRaw(10 * time.Second) // CLOCK_MONOTONIC didn't see it: by itself it trusts the lease
	if !l.Valid(source.Monotonic()) {
		t.Fatal("the lease should be valid before the gap is reported")
	}
	source.AdvanceMonotonic(time.Millisecond)
	l.Reset(3)
	l.Ack("c", 3, sentBefore)
	if l.Valid(source.Monotonic()) {
		t.Error("valid by an answer to a request from before the gap")
	}
	l.Ack("c", 3, source.Monotonic())
	if !l.Valid(source.Monotonic()) {
		t.Error("not valid though a majority has answered again")
	}
}

func TestNewVotersMustAnswerAgain(t *testing.T) {
	var source clock.Manual
	l := clock.NewLease(&source, leaseLength, "a", []string{"a", "b", "c"})
	l.Reset(3)
	l.Ack("b", 3, source.Monotonic())
	source.Advance(time.Millisecond)
	l.SetVoters([]string{"a", "b", "c", "d"})
	if l.Valid(source.Monotonic()) {
		t.Error("valid by the answers of the old voters")
	}
	l.Ack("b", 3, source.Monotonic())
	if l.Valid(source.Monotonic()) {
		t.Error("two of four are no majority")
	}
	l.Ack("d", 3, source.Monotonic())
	if !l.Valid(source.Monotonic()) {
		t.Error("three of four are a majority")
	}
}

// The oracle counts, for every question, the voters whose newest eligible answer is fresh.
func TestLeaseEqualsCountingTheAnswers(t *testing.T) {
	rng := seeded(t)
	names := []string{"a", "b", "c", "d", "e"}
	for range 200 {
		var source clock.Manual
		voters := names[:1+rng.IntN(len(names))]
		l := clock.NewLease(&source, leaseLength, "a", voters)
		term, newest := uint64(0), map[string]int64{}
		floor := int64(0)
		for range 100 {
			source.Advance(time.Duration(rng.IntN(200)) * time.Millisecond)
			now := source.Monotonic()
			if rng.IntN(10) == 0 {
				term = uint64(rng.IntN(4))
				l.Reset(term)
				newest, floor = map[string]int64{}, now
			}
			peer, of, sent := names[rng.IntN(len(names))], uint64(rng.IntN(4)), now-ms(int64(rng.IntN(600)))
			l.Ack(peer, of, sent)
			if of == term && sent >= floor && slices.Contains(voters, peer) {
				if old, ok := newest[peer]; !ok || sent > old {
					newest[peer] = sent
				}
			}
			fresh := 1
			for peer, sent := range newest {
				if peer != "a" && now-sent < int64(leaseLength) {
					fresh++
				}
			}
			if got, want := l.Valid(now), term != 0 && 2*fresh > len(voters); got != want {
				t.Fatalf("voters %v, term %d, answers %v at %d: got %v, want %v", voters, term, newest, now, got, want)
			}
		}
	}
}

func TestValidDoesNotAllocate(t *testing.T) {
	var source clock.Manual
	l := clock.NewLease(&source, leaseLength, "a", []string{"a", "b", "c"})
	l.Reset(1)
	if n := testing.AllocsPerRun(100, func() { l.Ack("b", 1, source.Monotonic()); l.Valid(source.Monotonic()) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLeaseValid(b *testing.B) {
	var source clock.Manual
	l := clock.NewLease(&source, leaseLength, "a", []string{"a", "b", "c"})
	l.Reset(1)
	l.Ack("b", 1, 0)
	for b.Loop() {
		l.Valid(0)
	}
}

// seeded returns a generator whose seed is logged, and taken from QUORATE_SEED where that is set.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("QUORATE_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("QUORATE_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}
