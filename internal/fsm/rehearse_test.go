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
		if l, r := logged.m.Memory(), rehearsed.m.Memory(); r.Records > 0 || r.Keys > l.Keys+3 {
			t.Errorf("it remembers %d ids and %d keys, the log %d keys", r.Records, r.Keys, l.Keys)
		}
	})
	if denied == 0 {
		t.Error("nothing was denied")
	}
}
