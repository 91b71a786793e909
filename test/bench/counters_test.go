package main

import "testing"

// TestNodesThatAreAheadInTurnsAreNotEven: each has applied one more entry of the partition that it leads.
func TestNodesThatAreAheadInTurnsAreNotEven(t *testing.T) {
	const first, second = appliedIndex + `{partition="0"}`, appliedIndex + `{partition="1"}`
	p := progress{
		events: []uint64{11, 11}, entries: []uint64{21, 21},
		applied: []samples{{first: 11, second: 10}, {first: 10, second: 11}},
	}
	if p.even() {
		t.Error("taken for even")
	}
	p.applied[1] = samples{first: 11, second: 10}
	if !p.even() {
		t.Error("not taken for even")
	}
}
