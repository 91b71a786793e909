package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestHistogramBucketsCoverEveryDuration: buckets follow each other without a gap, and are as narrow as promised.
func TestHistogramBucketsCoverEveryDuration(t *testing.T) {
	last := len(histogram{}.counts) - 1
	if got := bucketOf(math.MaxInt64); got != last-1<<subBits && got > last {
		t.Fatalf("the longest duration is in bucket %d of %d", got, last)
	}
	for b := range bucketOf(math.MaxInt64) {
		upper := upperOf(b)
		if bucketOf(upper) != b || bucketOf(upper+1) != b+1 {
			t.Fatalf("bucket %d ends at %d, which is in %d, and the next value in %d", b, upper, bucketOf(upper), bucketOf(upper+1))
		}
		if b > 0 {
			if width := upper - upperOf(b-1); width > 1 && float64(width) > float64(upper)/(1<<subBits) {
				t.Fatalf("bucket %d is %d wide at %d", b, width, upper)
			}
		}
	}
}

// TestHistogramQuantiles compares with a sorted list.
func TestHistogramQuantiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var parts [3]histogram
	var all []int64
	for range 20_000 {
		v := int64(math.Exp(rng.Float64() * 24))
		parts[rng.IntN(len(parts))].add(v)
		all = append(all, v)
	}
	slices.Sort(all)
	var h histogram
	for i := range parts {
		h.merge(&parts[i])
	}
	for _, q := range []float64{0, 0.001, 0.25, 0.5, 0.95, 0.99, 0.9999, 1} {
		want := all[max(0, int(math.Ceil(q*float64(len(all))))-1)]
		got := int64(h.quantile(q))
		if got < want || float64(got) > float64(want)*(1+1.0/(1<<subBits)) {
			t.Errorf("quantile %v is %d, the list says %d", q, got, want)
		}
	}
	if h.total != 20_000 || h.most != all[len(all)-1] {
		t.Errorf("%d values up to %d, want 20000 up to %d", h.total, h.most, all[len(all)-1])
	}
	if got := (&histogram{}).quantile(0.5); got != 0 {
		t.Errorf("the median of nothing is %v", got)
	}
	if s := h.spread(); s.P50 > s.P95 || s.P95 > s.P99 || s.P99 > s.P999 || s.P999 > s.Max || s.Max != ms(time.Duration(h.most)) {
		t.Errorf("the spread %+v doesn't rise", s)
	}
}
