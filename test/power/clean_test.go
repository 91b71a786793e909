package power_test

import (
	"fmt"
	"testing"
)

// TestThePlanIsWhatTheStoresDo: with no power lost, each step leads where the plan says.
func TestThePlanIsWhatTheStoresDo(t *testing.T) {
	for _, seed := range seeds(t, 12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := &replica{folder: scratch(t)}
			for i, s := range plan(seed, stepsOfSeed) {
				if err := r.do(s); err != nil {
					t.Fatalf("step %d, %s: %v", i, s.kind, err)
				}
				if err := r.compare(s.after()); err != nil {
					t.Fatalf("after step %d, %s %d to %d: %v", i, s.kind, s.low, s.high, err)
				}
			}
			if err := r.stores.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
