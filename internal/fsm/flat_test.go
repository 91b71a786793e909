package fsm_test

import (
	"fmt"
	"testing"

	"github.com/quorate/quorate/internal/fsm"
)

// TestMEM04ADecisionTouchesAsMuchAmongManyKeysAsAmongFew: nothing that a decision does
// may grow with the number of live keys. What it writes can be counted: segments
// written to since a snapshot. (What it takes in time is BenchmarkState's.)
func TestMEM04ADecisionTouchesAsMuchAmongManyKeysAsAmongFew(t *testing.T) {
	const asked = 10
	for _, keys := range []int{100, 100_000} {
		r := start(t, settings(), perUser(rolling(5, hour)))
		for at := 0; at < keys; at += 1000 {
			var batch []*fsm.Check
			for i := at; i < min(at+1000, keys); i++ {
				batch = append(batch, r.check(1, desc(fmt.Sprintf("user=u%d", i))))
			}
			r.decide(batch...)
		}
		r.m.Snapshot()
		for i := range asked {
			r.want(fsm.VerdictAllow, r.check(1, desc(fmt.Sprintf("user=u%d", i))))
			r.want(fsm.VerdictAllow, r.check(1, desc(fmt.Sprintf("user=new%d", i))))
		}
		// A charge writes its block, perhaps a larger one and the slot that names it; a new
		// key also a place in the expiry queue, which few others have to make way for.
		if n := r.m.WrittenSegments(); n == 0 || n > asked*12 {
			t.Errorf("%d keys: %d segments written for %d decisions", keys, n, 2*asked)
		}
	}
}
