package client_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/api/client/clienttest"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// BenchmarkCheck: one client with so many callers at a time, and a cluster in the same process, over TCP on
// this machine. The cluster's part is counted too.
func BenchmarkCheck(b *testing.B) {
	for _, callers := range []int{1, 16, 256, 1024} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) { benchmarkCheck(b, callers) })
	}
}

func benchmarkCheck(b *testing.B, callers int) {
	cluster, err := clienttest.Start(clienttest.Config{Policies: `
policies:
- {name: users, key: [user], limits: [{name: per-hour, rollingWindow: {limit: 100000, window: 1h}}]}
`})
	if err != nil {
		b.Fatal(err)
	}
	defer cluster.Close()
	address, err := cluster.Listen()
	if err != nil {
		b.Fatal(err)
	}
	c, err := client.New(client.Config{Addresses: []string{address}})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	questions := make([]*quotav1.CheckRequest, 8192)
	for i := range questions {
		questions[i] = asksIn("", "user", fmt.Sprintf("u%d", i), "path", "/v1/things")
	}
	if _, err := c.Check(context.Background(), questions[0]); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var asking sync.WaitGroup
	for range callers {
		asking.Go(func() {
			for i := left.Add(-1); i >= 0; i = left.Add(-1) {
				a, err := c.Check(context.Background(), questions[i%int64(len(questions))])
				if err != nil || a.GetDecision() != quotav1.Decision_DECISION_ALLOW {
					b.Errorf("%v, %v", a, err)
					return
				}
			}
		})
	}
	asking.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "checks/s")
}
