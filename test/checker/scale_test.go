package checker_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/quorate/quorate/test/checker"
)

// crowd writes a history of n calls of many callers: half of them over many keys, half on a few hot ones, of
// which one is mostly allowed. A call in a hundred has no answer, one in fifty repeats an id.
func crowd(path string, n int) error {
	w, err := checker.Create(path)
	if err != nil {
		return err
	}
	l := newLimiter("", rand.New(rand.NewPCG(1, 2)), second, 1)
	l.limits = []limitSpec{{"fast", 100 * ms, 20}}
	_ = w.Write(&checker.Policies{Sent: 1, Answered: 2, Outcome: checker.Applied, Set: 1,
		Limits: []checker.Limit{{Quota: "media/conversions", Name: "fast", Algorithm: checker.Rolling, Max: 20, Window: 100 * ms}}})
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range n {
		now := 2*second + int64(i)*50_000 // 20,000 a second
		key := fmt.Sprintf("principal=%06d", rng.IntN(500_000))
		if rng.IntN(2) == 0 {
			key = fmt.Sprintf("hot=%d", min(rng.IntN(20), 2)*rng.IntN(2)+rng.IntN(3))
		}
		c := checker.Call{Client: fmt.Sprintf("c%d", i%300), ID: fmt.Sprintf("%016x%016x", rng.Uint64(), i), Quota: "media/conversions", Key: key, Cost: 1, Node: "n1"}
		l.decide(&c, now, now)
		if log := l.log[key]; len(log) > 40 {
			l.log[key] = append(log[:0:0], log[20:]...)
		}
		c.Sent, c.Answered = now-int64(rng.IntN(3_000_000)), now+int64(rng.IntN(3_000_000))
		switch {
		case i%100 == 0:
			c.Answer, c.Answered, c.Partition, c.Epoch, c.Time = checker.Unknown, 0, -1, 0, 0
		case i%50 == 1 && c.Answer == checker.Allow:
			again := c
			again.Sent, again.Answered, again.Replayed = c.Answered+1, c.Answered+2, true
			_ = w.Write(&again)
		}
		_ = w.Write(&c)
	}
	return w.Close()
}

// BenchmarkTwoMillionLines is how long a long run's history takes, and how much memory.
func BenchmarkTwoMillionLines(b *testing.B) {
	path := os.Getenv("HISTORY") // to keep it
	if path == "" {
		path = filepath.Join(b.TempDir(), "history.jsonl")
	}
	if err := crowd(path, 2_000_000); err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	for b.Loop() {
		report, err := checker.CheckFile(path, checker.Options{Fenced: true})
		if err != nil {
			b.Fatal(err)
		}
		if !report.OK() {
			b.Fatal(report)
		}
		b.Log("\n" + report.String())
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.Sys)/1e6, "MB")
}
