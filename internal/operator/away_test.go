package operator

import (
	"testing"
	"time"
)

// TestCRD16AnAPIServerThatIsAwayChangesNothing: an error is no empty list.
func TestCRD16AnAPIServerThatIsAwayChangesNothing(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3", "a/q 3")
		g.rest()
		g.away = true
		for range 10 {
			if _, err := g.once(); err == nil {
				t.Error("no error")
			}
			<-time.After(time.Minute)
		}
		g.inForce("a/p=3 a/q=3")
		g.away = false
		g.apply("a/p 4")
		g.rest()
		g.inForce("a/p=4 a/q=3")
	})
}
