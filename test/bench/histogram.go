package main

import (
	"math/bits"
	"time"
)

// subBits fixes the histogram's precision: values are told apart to one part in 2^subBits.
const subBits = 7

// histogram counts durations in buckets whose width grows with the value: below one per cent of it. The zero
// value is empty. It holds every duration there is, so nothing is ever cut off.
type histogram struct {
	counts [(64 - subBits) << subBits]uint64
	total  uint64
	most   int64
}

func bucketOf(v int64) int {
	if v < 1<<subBits {
		return int(max(v, 0))
	}
	shift := bits.Len64(uint64(v)) - subBits - 1
	return shift<<subBits + int(v>>shift)
}

// upperOf is the largest value of a bucket.
func upperOf(bucket int) int64 {
	if bucket < 2<<subBits {
		return int64(bucket)
	}
	shift := bucket>>subBits - 1
	return int64(bucket-shift<<subBits+1)<<shift - 1
}

func (h *histogram) add(v int64) {
	h.counts[bucketOf(v)]++
	h.total++
	h.most = max(h.most, v)
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.total += o.total
	h.most = max(h.most, o.most)
}

// quantile is a value that at least that share of all are no larger than; 0 if there are none.
func (h *histogram) quantile(share float64) time.Duration {
	rank := uint64(share * float64(h.total))
	if float64(rank) < share*float64(h.total) || rank == 0 {
		rank++
	}
	seen := uint64(0)
	for i, n := range h.counts {
		if seen += n; seen >= rank && n > 0 {
			return time.Duration(min(upperOf(i), h.most))
		}
	}
	return 0
}

// spread is what a table shows of a histogram, in milliseconds.
type spread struct {
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

func (h *histogram) spread() spread {
	return spread{
		ms(h.quantile(0.5)), ms(h.quantile(0.95)), ms(h.quantile(0.99)), ms(h.quantile(0.999)), ms(time.Duration(h.most)),
	}
}

func ms(d time.Duration) float64 { return round(float64(d)/1e6, 3) }
