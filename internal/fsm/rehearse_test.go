package fsm_test

import (
	"testing"

	"github.com/quorate/quorate/internal/fsm"
)

// A rehearsal is what a log of batches of one check each would have come to.
func TestRehearsalDecidesAsTheLogDoes(t *testing.T) {
	seeds := 40
	if testing.Short() || raceEnabled {
		seeds = 10
	}
	denied := 0
	eachSeed(t, seeds, func(t *testing.T, seed uint64) {
		logged, rehearsed := newHistory(t, seeded(seed)), newHistory(t, seeded(seed))
		for range 150 {
			c := logged.question()
			logged.now = max(0, logged.now+logged.pause())
			c.Fence = max(logged.m.Now(), logged.now)
			now := logged.now
			want := logged.decide(c)[0]
			if got := rehearsed.m.Rehearse(now, c); got != want {
				t.Fatalf("at %d: %v\n got %+v\nwant %+v", now, c.Charges, got, want)
			}
			if want.Verdict == fsm.VerdictDeny {
				denied++
			}
		}
		// A rehearsed check reclaims a few keys only, a batch many more. When nothing is due any more, both
		// hold exactly the keys of which something still counts.
		for range 100 {
			c := logged.question()
			c.Fence = logged.m.Now()
			logged.decide(c)
			rehearsed.m.Rehearse(logged.m.Now(), c)
		}
		logged.settle()
		if l, r := logged.m.Memory(), rehearsed.m.Memory(); rehearsed.m.Due() || r.Records > 0 || r.Keys != l.Keys {
			t.Errorf("it remembers %d ids and %d keys, the log %d keys; due %v", r.Records, r.Keys, l.Keys, rehearsed.m.Due())
		}
	})
	if denied == 0 {
		t.Error("nothing was denied")
	}
}
