package rig

import "testing"

// TestABlockOfPortsBelongsToOneProcess until it ends.
func TestABlockOfPortsBelongsToOneProcess(t *testing.T) {
	var a, b, c portBlock
	a.take(t)
	b.take(t)
	if a.first == b.first {
		t.Errorf("both have the ports from %d", a.first)
	}
	if err := a.block.Close(); err != nil { // as when a process ends
		t.Fatal(err)
	}
	c.take(t)
	if c.first == b.first {
		t.Errorf("both have the ports from %d", c.first)
	}
	for _, p := range []*portBlock{&b, &c} {
		if err := p.block.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
