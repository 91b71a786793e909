package exact_test

import (
	"runtime"
	"slices"
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

//go:noinline
func work(n int) int {
	if n == 0 {
		return 1
	}
	return work(n-1) + 1
}

// A goroutine that works for long is not interrupted.
func TestNothingIsPreempted(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	run, err := exact.Begin()
	if err != nil {
		t.Fatal(err)
	}
	run.Seed(1)
	ran := false
	done := make(chan struct{})
	go func() { ran = true; close(done) }()
	for range 3_000_000 {
		work(100)
	}
	interrupted := ran
	<-done
	if err := run.End(); err != nil {
		t.Fatal(err)
	}
	if interrupted {
		t.Error("it was")
	}
}
