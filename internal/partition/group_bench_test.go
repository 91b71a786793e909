package partition_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/partition"
)

// started returns three replicas on real files and in real time, and the leader.
func started(b *testing.B) (*cluster, *replica) {
	cl := newCluster(b, b.TempDir(), onFiles)
	for _, r := range cl.replicas {
		r.start()
	}
	b.Cleanup(cl.finish)
	cl.adopt()
	return cl, cl.leader()
}

// BenchmarkGroup is callers who each ask one check after another, of a million
// keys: allows a second, and how long each took.
func BenchmarkGroup(b *testing.B) {
	for _, callers := range []int{1, 256, 1024} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			_, r := started(b)
			latencies := make([][]time.Duration, callers)
			var left atomic.Int64
			left.Store(int64(b.N))
			var refused atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					rng, done := rand.New(rand.NewPCG(uint64(i), 1)), make(chan struct{}, 1)
					for left.Add(-1) >= 0 {
						c := &partition.Call{
							Request: partition.Request{
								Domain: "open", Cost: 1, Unfenced: true, ID: randomID(rng),
								Descriptors: []keyspace.Descriptor{principalIs(fmt.Sprint("user-", rng.IntN(1_000_000)))},
							},
							Done: func(*partition.Call) { done <- struct{}{} },
						}
						begun := time.Now()
						r.group.Load().Submit(c)
						<-done
						latencies[i] = append(latencies[i], time.Since(begun))
						if c.Result != partition.Allowed {
							refused.Add(1)
						}
					}
				})
			}
			all.Wait()
			b.StopTimer()
			sorted := slices.Concat(latencies...)
			slices.Sort(sorted)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "allows/s")
			b.ReportMetric(float64(sorted[len(sorted)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(sorted[len(sorted)*95/100].Microseconds()), "p95-µs")
			if n := refused.Load(); n > 0 {
				b.Errorf("%d were not allowed", n)
			}
		})
	}
}

func randomID(rng *rand.Rand) (id fsm.ID) {
	binary.NativeEndian.PutUint64(id[:8], rng.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rng.Uint64())
	return id
}

// BenchmarkKnownDenied is checks of an exhausted key, answered from memory.
func BenchmarkKnownDenied(b *testing.B) {
	cl, r := started(b)
	r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed)
	g := r.group.Load()
	q := cl.request("three", "u1")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c := &partition.Call{Done: func(*partition.Call) {}}
		for pb.Next() {
			c.Request = q
			g.Submit(c)
			if c.Result != partition.Denied {
				b.Errorf("got %s", name(c.Result))
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "denials/s")
}
