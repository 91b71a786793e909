package fsm

import "math/bits"

// blockRef names a block of the arena: a size class and a number in it.
type blockRef uint32

const (
	refNumberBits = 25
	refNumberMask = 1<<refNumberBits - 1

	// maxKeys is how many blocks of one size, and so how many keys, a
	// partition can number.
	maxKeys = 1<<refNumberBits - 1

	minBlock = 24
	maxBlock = 4 << 20
)

func makeRef(class int, number uint32) blockRef {
	return blockRef(class)<<refNumberBits | blockRef(number)
}
func (r blockRef) class() int     { return int(r >> refNumberBits) }
func (r blockRef) number() uint32 { return uint32(r) & refNumberMask }

// arena holds blocks of a few dozen sizes in large segments, so that a million
// keys cost a few thousand allocations and no pointer each. Blocks of one size
// share segments; a released one is a hole that the next takes, and where holes
// abound blocks move together (hole.go). Segments are frozen and copied like those
// of a table.
//
// Where a block lies is nobody's business: a restored arena is laid out afresh,
// and nothing that a replica answers or hashes depends on it.
type arena struct {
	classes [numClasses]class
	gen     uint32
	owner   owner
}

// owner is who names the blocks of an arena.
type owner interface {
	// moved is told of a block that a release has moved. It is there already;
	// whoever names it by its old reference must learn the new one.
	moved(from, to blockRef)
	// soon is told which blocks of a class are likely to move next, so that it can
	// read ahead what moved will need of them all. Some may be holes.
	soon(class int, from, to uint32)
}

type class struct {
	segs []arenaSeg
	size uint32 // bytes of a block
	per  uint32 // blocks of a segment
	n    uint32 // blocks and holes
	live uint32 // blocks
	hole uint32 // number of the first hole + 1; 0 = none
}

func newArena(o owner) *arena {
	a := &arena{owner: o}
	for i := range a.classes {
		a.classes[i] = newClass(sizeOfClass(i))
	}
	return a
}

// newClass sizes segments: small enough that copying one behind a snapshot takes
// less than a microsecond, and four blocks at least, which for the larger sizes
// fills what the allocator rounds up to.
func newClass(size int) class {
	const segment, large = 4 << 10, 8 << 10
	per := max(4, segment/size)
	if size > large {
		per = 1
	}
	return class{size: uint32(size), per: uint32(per)}
}

type arenaSeg struct {
	bytes []byte
	gen   uint32
}

// Block sizes rise in steps of 8 up to 128, then of an eighth up to 512, then
// of a quarter: small blocks are the many, large ones the few.
const (
	fineClasses   = (128-minBlock)/8 + 1
	middleClasses = 2 * 8
	coarseClasses = 13 * 4
	numClasses    = fineClasses + middleClasses + coarseClasses
)

func classOf(size int) int {
	switch {
	case size <= minBlock:
		return 0
	case size <= 128:
		return (size - minBlock + 7) / 8
	case size <= 512:
		return fineClasses + stepAbove(size, 7, 3)
	case size <= maxBlock:
		return fineClasses + middleClasses + stepAbove(size, 9, 2)
	}
	panic("fsm: a block larger than the arena's largest")
}

// stepAbove counts the steps from 2^base to size, 2^perDouble of them to each
// doubling, less one.
func stepAbove(size, base, perDouble int) int {
	top := bits.Len(uint(size-1)) - 1
	step := (size-1)>>(top-perDouble) - 1<<perDouble
	return (top-base)<<perDouble + step
}

func sizeOfClass(c int) int {
	switch {
	case c < fineClasses:
		return minBlock + 8*c
	case c < fineClasses+middleClasses:
		return sizeAbove(c-fineClasses, 7, 3)
	}
	return sizeAbove(c-fineClasses-middleClasses, 9, 2)
}

func sizeAbove(step, base, perDouble int) int {
	double, rest := step>>perDouble, step&(1<<perDouble-1)
	return (1<<perDouble + rest + 1) << (base + double - perDouble)
}

// alloc returns a block of at least size bytes. Its first word is zero and the rest
// whatever was there; the first word must never become holeMark.
func (a *arena) alloc(size int) blockRef {
	ci := classOf(size)
	c := &a.classes[ci]
	c.live++
	if c.hole != 0 {
		ref := makeRef(ci, c.hole-1)
		a.fill(ref)
		return ref
	}
	if c.n/c.per == uint32(len(c.segs)) {
		c.segs = append(c.segs, arenaSeg{bytes: make([]byte, c.size*c.per), gen: a.gen})
	}
	c.n++
	ref := makeRef(ci, c.n-1)
	hole(a.write(ref)).unmark() // it may have been one before the class shrank
	return ref
}

func (a *arena) locate(r blockRef) (s *arenaSeg, from, to uint32) {
	c := &a.classes[r.class()]
	n := r.number()
	from = n % c.per * c.size
	return &c.segs[n/c.per], from, from + c.size
}

// read returns a block's bytes for reading.
func (a *arena) read(r blockRef) []byte {
	s, from, to := a.locate(r)
	return s.bytes[from:to:to]
}

// write returns a block's bytes for writing, good until the next freeze.
func (a *arena) write(r blockRef) []byte {
	s, from, to := a.locate(r)
	if s.gen != a.gen {
		s.bytes = append([]byte(nil), s.bytes...)
		s.gen = a.gen
	}
	return s.bytes[from:to:to]
}

// release frees a block, and may move others of its class. A class without live
// blocks gives its memory back.
func (a *arena) release(r blockRef) {
	c := &a.classes[r.class()]
	if c.live--; c.live == 0 {
		*c = newClass(int(c.size))
		return
	}
	a.dig(r)
	for i := 0; i < packSteps && c.sparse(); i++ {
		a.pack(r.class())
	}
}

// freeze returns the arena as it is now, for reading.
func (a *arena) freeze() *arena {
	a.gen++
	f := &arena{}
	for i, c := range a.classes {
		c.segs = append([]arenaSeg(nil), c.segs...)
		f.classes[i] = c
	}
	return f
}
