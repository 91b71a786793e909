package partition_test

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/clock"
	"github.com/quorate/quorate/internal/partition"
)

// interrupted is a source at whose reading, in the middle of sealing a batch, something else happens once.
type interrupted struct {
	clock.Source
	between atomic.Pointer[func()]
}

// Monotonic implements clock.Source.
func (s *interrupted) Monotonic() int64 {
	if between := s.between.Load(); between != nil && sealing() && s.between.CompareAndSwap(between, nil) {
		(*between)()
	}
	return s.Source.Monotonic()
}

// sealing reports whether its caller's caller seals a batch.
func sealing() bool {
	pc := make([]uintptr, 1)
	runtime.Callers(3, pc)
	frame, _ := runtime.CallersFrames(pc).Next()
	return strings.HasSuffix(frame.Function, "(*Group).take")
}

// A check that comes while a batch is being sealed, on a machine that is busy, may still get into it. It isn't
// charged at a time from before it was asked: who asks for the next when that has left its window would get it early.
func TestNobodyIsChargedAtATimeFromBeforeItAsked(t *testing.T) {
	sources := map[string]*interrupted{}
	inBubble(t, func(cl *cluster) {
		leader := cl.leader()
		var second *sent
		asked := int64(0)
		during := func() {
			pass(50 * time.Millisecond) // the machine has something else to do
			asked = leader.group.Load().Inspect("three", principalIs("b")).Time
			second = leader.submit(cl.request("three", "b"))[0]
		}
		sources[leader.id].between.Store(&during)
		leader.want("three", "a", partition.Allowed)
		if second == nil {
			t.Fatal("nothing happened while a batch was sealed")
		}
		if o := second.wait(); o.Result != partition.Allowed || asked == 0 || o.Time < asked {
			t.Errorf("%s at %d, asked at %d", name(o.Result), o.Time, asked)
		}
	}, tuned(func(cfg *partition.Config) {
		s := &interrupted{Source: cfg.Source}
		sources[cfg.ID] = s
		cfg.Source = s
	}))
}
