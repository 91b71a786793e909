package fsm

// segmentRows is how many rows a table's segment holds: growing or copying one
// segment takes a few microseconds, which is what keeps a single apply short.
const segmentRows = 1024

// table is an array that grows by whole segments, so that no apply ever moves
// the rows that are already there, and that can be frozen for a snapshot
// without copying them.
//
// freeze starts a new generation. A segment of an older generation may be under
// the eyes of a snapshot, so mut copies it before handing out a row to write;
// whoever holds the frozen table reads it from another goroutine meanwhile.
// T holds no pointers: the collector then never looks inside a segment.
type table[T any] struct {
	segs []segment[T]
	n    uint32
	gen  uint32
}

type segment[T any] struct {
	rows []T
	gen  uint32
}

func (t *table[T]) len() uint32 { return t.n }

// at returns row i for reading.
func (t *table[T]) at(i uint32) *T {
	return &t.segs[i/segmentRows].rows[i%segmentRows]
}

// mut returns row i for writing; the pointer is good until the next freeze.
func (t *table[T]) mut(i uint32) *T {
	s := &t.segs[i/segmentRows]
	if s.gen != t.gen {
		s.rows = append(make([]T, 0, segmentRows), s.rows...)
		s.gen = t.gen
	}
	return &s.rows[i%segmentRows]
}

// push adds a row and returns its number.
func (t *table[T]) push(v T) uint32 {
	i := t.n
	if int(i/segmentRows) == len(t.segs) {
		t.segs = append(t.segs, segment[T]{rows: make([]T, segmentRows), gen: t.gen})
	}
	t.n++
	*t.mut(i) = v
	return i
}

// pop drops the last row.
func (t *table[T]) pop() {
	t.n--
	if last := t.n / segmentRows; t.n%segmentRows == 0 {
		t.segs[last] = segment[T]{} // or the list would keep its memory
		t.segs = t.segs[:last]
	}
}

// reset gives all memory back.
func (t *table[T]) reset() { t.segs, t.n = nil, 0 }

// freeze returns the table as it is now; it never changes again.
func (t *table[T]) freeze() table[T] {
	t.gen++
	return table[T]{segs: append([]segment[T](nil), t.segs...), n: t.n}
}

// ringRows is how many rows a ring's segment holds. Nobody copies one, and so many
// decision records fill whole pages of the allocator.
const ringRows = 2048

// ring is a queue of rows numbered from zero for ever. Rows are written once,
// when they are pushed, so a frozen ring needs no copies: later pushes land
// behind its end.
type ring[T any] struct {
	segs [][]T
	head uint64 // number of the oldest row
	tail uint64 // number of the next row
}

func (r *ring[T]) len() uint64 { return r.tail - r.head }

func (r *ring[T]) at(i uint64) *T {
	return &r.segs[i/ringRows-r.head/ringRows][i%ringRows]
}

func (r *ring[T]) push(v T) {
	if len(r.segs) == 0 || r.tail%ringRows == 0 {
		r.segs = append(r.segs, make([]T, ringRows))
	}
	r.tail++
	*r.at(r.tail - 1) = v
}

// drop forgets the oldest row.
func (r *ring[T]) drop() {
	r.head++
	switch {
	case r.head == r.tail:
		r.segs = nil
	case r.head%ringRows == 0:
		r.segs[0] = nil // or the list would keep its memory
		r.segs = r.segs[1:]
	}
}

func (r *ring[T]) freeze() ring[T] {
	return ring[T]{segs: append([][]T(nil), r.segs...), head: r.head, tail: r.tail}
}
