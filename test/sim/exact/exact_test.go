package exact_test

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/test/sim/exact"
)

// draws are what selects and maps come to, many times.
func draws() (all []int) {
	a, b := make(chan int, 1), make(chan int, 1)
	m := map[int]int{1: 1, 2: 2, 3: 3, 4: 4, 5: 5}
	for range 100 {
		a <- 1
		b <- 2
		select {
		case v := <-a:
			all = append(all, v, <-b)
		case v := <-b:
			all = append(all, v, <-a)
		}
		for k := range m {
			all = append(all, k)
		}
	}
	return all
}

// What a seed draws, it draws again; another seed draws something else.
func TestSelectsAndMapsFollowFromTheSeed(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	of := func(seed uint64) []int {
		run, err := exact.Begin()
		if err != nil {
			t.Fatal(err)
		}
		run.Seed(seed)
		all := draws()
		if err := run.End(); err != nil {
			t.Fatal(err)
		}
		return all
	}
	first := of(1)
	if !slices.Equal(first, of(1)) {
		t.Error("a seed drew two things")
	}
	if slices.Equal(first, of(2)) {
		t.Error("two seeds drew the same")
	}
	if slices.Equal(draws(), draws()) {
		t.Error("without a seed it is the same, too: nothing was shown")
	}
}

// deep calls functions, where the runtime could interrupt it.
//
//go:noinline
func deep(n int) int {
	if n == 0 {
		return 1
	}
	return deep(n-1) + 1
}

// interrupted works for a while beside a goroutine that waits for its turn, and says whether it got it.
func interrupted(turns int) bool {
	var ran atomic.Bool
	var other sync.WaitGroup
	other.Go(func() { ran.Store(true) })
	steps := 0
	for range turns {
		if steps += deep(100); ran.Load() {
			break
		}
	}
	got := ran.Load() || steps == 0
	other.Wait()
	return got
}

// A goroutine that works for longer than others are given is not interrupted.
func TestNothingIsPreempted(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	run, err := exact.Begin()
	if err != nil {
		t.Fatal(err)
	}
	run.Seed(1)
	was := interrupted(400_000)
	if err := run.End(); err != nil {
		t.Fatal(err)
	}
	if was {
		t.Error("it was interrupted")
	}
	if !interrupted(400_000_000) {
		t.Error("nothing interrupts it in any case: nothing was shown")
	}
}
