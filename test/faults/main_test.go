package faults_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/quorate/quorate/test/rig"
)

// programs are those that TestMain has built.
var programs rig.Programs

func TestMain(m *testing.M) {
	os.Exit(rig.Run(func(built rig.Programs) int {
		programs = built
		return m.Run()
	}, "cmd/quotanode", "cmd/quotactl", "test/faults/faultnode"))
}

// The ways to run: FAULTS says which; without it the suite is a smoke.
const (
	everyFault = "all"    // each fault once
	everyCell  = "matrix" // each fault in each phase
	forHours   = "soak"   // round after round for HOURS
)

// TestClientsSeeNoBrokenPromiseUnderFaults runs cells, and judges what callers saw.
func TestClientsSeeNoBrokenPromiseUnderFaults(t *testing.T) {
	seed := seedFromEnv(t)
	r := &report{Seed: seed}
	defer r.write(t)
	switch cell := os.Getenv("CELL"); {
	case cell != "":
		run(t, r, seed, named(cell))
	case os.Getenv("FAULTS") == forHours:
		hours, err := strconv.ParseFloat(os.Getenv("HOURS"), 64)
		if err != nil || !(hours > 0) {
			t.Fatalf("HOURS: %q is no number of hours above 0", os.Getenv("HOURS"))
		}
		for end := time.Now().Add(time.Duration(hours * float64(time.Hour))); time.Now().Before(end) && !t.Failed(); seed++ {
			fmt.Printf("SEED=%d\n", seed)
			run(t, r, seed, drawn(seed))
		}
	case os.Getenv("FAULTS") == everyCell:
		run(t, r, seed, ordered(named(""), chance(seed, everyCell)))
	case os.Getenv("FAULTS") == everyFault:
		run(t, r, seed, drawn(seed))
	default:
		run(t, r, seed, smoke())
	}
}

// seedFromEnv is the one that was asked for, or a new one.
func seedFromEnv(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("SEED")
	if text == "" {
		return uint64(rand.N(1_000_000))
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("SEED: %v", err)
	}
	return seed
}
