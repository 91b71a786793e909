package file

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/policy"
)

func TestZZMeasure(t *testing.T) {
	ov := func(n int) string {
		var b strings.Builder
		b.WriteString("policies:\n- name: p\n  key: [principal]\n  limits:\n  - {name: per-minute, rollingWindow: {limit: 3, window: 1m}}\n  overrides:\n")
		for i := 0; b.Len() < n-80; i++ {
			fmt.Fprintf(&b, "  - {when: {principal: u%d}, amounts: {per-minute: {limit: 5}}}\n", i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"overrides": ov(4 << 20), "commas": "policies: [" + strings.Repeat("a,", 2<<20-20) + "a]",
		"empties": "policies: [" + strings.Repeat("[],", (4<<20-40)/3) + "a]",
		"names": "policies: {" + strings.Repeat("a,", 2<<20-20) + "a: b}",
		"comments": "policies: []\n" + strings.Repeat("#\n", 2<<20-20),
		"deep": "policies: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
	} {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		stop := make(chan struct{})
		peak := make(chan uint64)
		go func() {
			var most uint64
			for {
				select {
				case <-stop:
					peak <- most
					return
				default:
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					most = max(most, m.HeapInuse)
					time.Sleep(20 * time.Millisecond)
				}
			}
		}()
		start := time.Now()
		var r reader
		set := r.read([]byte(text), policy.Set.Validate)
		took := time.Since(start)
		runtime.ReadMemStats(&after)
		close(stop)
		fmt.Printf("%-10s %8d bytes: %6d MiB allocated, heap peak %d MiB, %v, %d policies, %d problems\n", name, len(text), (after.TotalAlloc-before.TotalAlloc)>>20, (<-peak)>>20, took, len(set.Policies), len(r.problems))
		runtime.KeepAlive(set)
	}
}
