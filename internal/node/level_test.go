package node

import (
	"testing"
	"time"

	"github.com/quorate/quorate/internal/clock"
)

// TestALevelCountsOnlyWhileItsProcessSaysIt: lately, on a watch that is still open, and of that very disk.
func TestALevelCountsOnlyWhileItsProcessSaysIt(t *testing.T) {
	source := &clock.Manual{}
	source.Advance(time.Hour)
	p, other := &peer{name: "n2"}, &peer{name: "n3"}
	n := &Node{source: source, peers: []*peer{p, other}}
	const id = "n2-0123456789abcdef"
	is := func(want uint64, when string) {
		t.Helper()
		if got := n.said(id); got != want {
			t.Errorf("%s: level %d, want %d", when, got, want)
		}
	}
	is(0, "before it said anything")
	p.says(saidLevel{id, 2, source.Monotonic()})
	is(2, "now")
	if got := n.said("n3-0123456789abcdef"); got != 0 {
		t.Errorf("of another: level %d", got)
	}
	source.Advance(2*timesEvery - 1)
	is(2, "a moment ago")
	source.Advance(1)
	is(0, "too long ago")
	p.says(saidLevel{id, 1, source.Monotonic()})
	is(1, "after it went back")
	p.says(saidLevel{"n2-fedcba9876543210", 2, source.Monotonic()})
	is(0, "of a disk that was there before")
	p.says(saidLevel{id, 2, source.Monotonic()})
	p.says(saidLevel{})
	is(0, "after the watch ended")
}
