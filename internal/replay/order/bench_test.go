package order_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/quorate/quorate/internal/replay/order"
)

// One operation is one row of 100 bytes: added, sorted and given out.
func BenchmarkSort(b *testing.B) {
	const hour = int64(3600e9)
	for _, c := range []struct {
		name   string
		memory int64
		time   func(r *rand.Rand, i, n int64) int64
	}{
		{"memory/sorted", 1 << 30, func(_ *rand.Rand, i, n int64) int64 { return i * (hour / n) }},
		{"memory/nearly", 1 << 30, func(r *rand.Rand, i, n int64) int64 { return i*(hour/n) + r.Int64N(2e9) }},
		{"memory/random", 1 << 30, func(r *rand.Rand, _, _ int64) int64 { return r.Int64N(hour) }},
		{"spilled/sorted", 16 << 20, func(_ *rand.Rand, i, n int64) int64 { return i * (hour / n) }},
		{"spilled/nearly", 16 << 20, func(r *rand.Rand, i, n int64) int64 { return i*(hour/n) + r.Int64N(2e9) }},
		{"spilled/random", 16 << 20, func(r *rand.Rand, _, _ int64) int64 { return r.Int64N(hour) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			const rows = 1_000_000
			payload := make([]byte, 100)
			for range b.N {
				r := rand.New(rand.NewPCG(1, 2))
				s := order.New(order.Options{Memory: c.memory, Dir: b.TempDir()})
				for i := range int64(rows) {
					if err := s.Add(c.time(r, i, rows), payload); err != nil {
						b.Fatal(err)
					}
				}
				if err := s.Each(context.Background(), func(int64, []byte) error { return nil }); err != nil {
					b.Fatal(err)
				}
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows, "ns/row")
		})
	}
}
