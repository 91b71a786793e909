package sim

import "time"

// stream is what is drawn for one occasion: numbers that follow from the seed and from the occasion alone.
type stream struct{ x uint64 }

// draw begins the stream of an occasion: what it is, and its numbers.
func draw(seed uint64, what string, numbers ...uint64) *stream {
	x := mix(seed ^ 0x9e3779b97f4a7c15)
	for i := range len(what) {
		x = mix(x ^ uint64(what[i]))
	}
	for _, n := range numbers {
		x = mix(x + n + 1)
	}
	return &stream{x}
}

// mix spreads every bit of x over all of the result (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

func (s *stream) next() uint64 {
	s.x += 0x9e3779b97f4a7c15
	return mix(s.x)
}

// below is a number from 0 to n-1.
func (s *stream) below(n int) int { return int(s.next() % uint64(n)) }

// in happens so many times in a million.
func (s *stream) in(ppm int) bool { return s.next()%1e6 < uint64(ppm) }

// span is a time from low to high, to the nanosecond: two of them are hardly ever the same, and nothing
// depends on which of two things comes first that happen at once.
func (s *stream) span(low, high time.Duration) time.Duration {
	return low + time.Duration(s.next()%uint64(high-low+1))
}
