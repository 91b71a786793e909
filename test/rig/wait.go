package rig

import (
	"testing"
	"time"
)

// Patience bounds every wait. Nothing here takes a tenth of it on an idle machine.
const Patience = 60 * time.Second

// lookEvery is how long a wait pauses between two looks.
const lookEvery = 10 * time.Millisecond

// Eventually looks until done says so, and ends the test if that takes longer than [Patience].
func Eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	if !waits(done) {
		t.Fatalf("waited %v for %s", Patience, what)
	}
}

// Persist is [Eventually] for any goroutine: it fails the test and returns.
func Persist(t testing.TB, what string, done func() bool) {
	t.Helper()
	if !waits(done) {
		t.Errorf("waited %v for %s", Patience, what)
	}
}

func waits(done func() bool) bool {
	for end := time.Now().Add(Patience); !done(); time.Sleep(lookEvery) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
