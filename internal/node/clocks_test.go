package node_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/clock"
	"github.com/quorate/quorate/internal/partition"
)

// skewed is a process whose clocks both run wrong by some share, from some moment on.
type skewed struct {
	origin time.Time
	ppm    atomic.Int64
	from   atomic.Int64 // true time, since the origin
}

func newSkewed() *skewed { return &skewed{origin: time.Now()} }

func (s *skewed) Monotonic() int64 { return s.read() }
func (s *skewed) Raw() int64       { return s.read() }

func (s *skewed) read() int64 {
	now := int64(time.Since(s.origin))
	if ppm := s.ppm.Load(); ppm != 0 {
		now += (now - s.from.Load()) / 1e6 * ppm
	}
	return now
}

func (s *skewed) skew(ppm int64) {
	s.from.Store(int64(time.Since(s.origin)))
	s.ppm.Store(ppm)
}

// A leader whose clock runs faster than those of all others would make windows shorter: it admits nothing, and
// hands over. One whose clock is slow costs callers some time, and goes on.
func TestALeaderWithAFastClockAdmitsNothingAndHandsOver(t *testing.T) {
	t.Parallel()
	clocks := map[string]*skewed{}
	tr := newTrio(t, only(1), func(tr *trio) {
		tr.timing.Compare = 300 * time.Millisecond
		tr.sources = map[string]clock.Source{}
		for _, name := range tr.names {
			clocks[name] = newSkewed()
			tr.sources[name] = clocks[name]
		}
	})
	tr.start()
	tr.ready().apply(threePerMinute())
	tr.want("u1", fourth...)
	slow := tr.leader()
	clocks[slow].skew(-100_000)
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		if tr.node("n1").leaders()[0] == slow && tr.node(slow).ask(t, "u1").Result == partition.Clock {
			t.Fatal("a slow clock is no reason to refuse")
		}
	}
	clocks[slow].skew(0)
	<-time.After(500 * time.Millisecond)

	fast := tr.leader()
	clocks[fast].skew(100_000)
	tr.until("another leader", func() bool {
		o := tr.node(fast).ask(t, "u9")
		now := tr.node("n1").leaders()[0]
		return now != fast && now != "" && o.Result > partition.UnknownDomain
	})
	tr.want("u1", partition.Denied)
	clocks[fast].skew(0)
	tr.want("u2", fourth...)
}
