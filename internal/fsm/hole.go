package fsm

import (
	"encoding/binary"
	"math"
)

// hole is a free block of the arena. Its first bytes say so, and link it with the
// other holes of its class in both directions, so that any of them can be taken out:
//
//	0  holeMark u32   4 next u32   8 previous u32   both a number + 1, 0 = none
//
// A block in use needs no field for this: its first word names its quota and counts
// its states, and neither is ever all ones.
type hole []byte

const holeMark = math.MaxUint32

func (h hole) marked() bool     { return binary.LittleEndian.Uint32(h) == holeMark }
func (h hole) mark()            { binary.LittleEndian.PutUint32(h, holeMark) }
func (h hole) unmark()          { binary.LittleEndian.PutUint32(h, 0) }
func (h hole) next() uint32     { return binary.LittleEndian.Uint32(h[4:]) }
func (h hole) setNext(n uint32) { binary.LittleEndian.PutUint32(h[4:], n) }
func (h hole) prev() uint32     { return binary.LittleEndian.Uint32(h[8:]) }
func (h hole) setPrev(n uint32) { binary.LittleEndian.PutUint32(h[8:], n) }

// dig makes a block the first hole of its class.
func (a *arena) dig(r blockRef) {
	c := &a.classes[r.class()]
	h := hole(a.write(r))
	h.mark()
	h.setNext(c.hole)
	h.setPrev(0)
	if c.hole != 0 {
		hole(a.write(makeRef(r.class(), c.hole-1))).setPrev(r.number() + 1)
	}
	c.hole = r.number() + 1
}

// fill takes a hole out of the list.
func (a *arena) fill(r blockRef) {
	c := &a.classes[r.class()]
	h := hole(a.write(r))
	next, prev := h.next(), h.prev()
	if next != 0 {
		hole(a.write(makeRef(r.class(), next-1))).setPrev(prev)
	}
	if prev != 0 {
		hole(a.write(makeRef(r.class(), prev-1))).setNext(next)
	} else {
		c.hole = next
	}
	h.unmark()
}

// packSteps is how far one release packs its class. It takes one block out and digs
// one hole, so two steps keep up with any number of releases, and a class never has
// many more holes than blocks: one key that stays can't hold on to the memory of a
// million that went.
const packSteps = 2

// packAhead is how many blocks the owner hears of at a time before they move.
const packAhead = 32

// sparse reports whether a class has more holes than blocks and nearly a segment. What
// is within that isn't worth the moves: the next keys fill it.
func (c *class) sparse() bool { return c.n >= 2*c.live+c.per }

// pack makes a class shorter by its last block, which moves into a hole unless it is
// one, and gives back a segment that has become empty.
func (a *arena) pack(ci int) {
	c := &a.classes[ci]
	if c.n%packAhead == 0 {
		a.owner.soon(ci, c.n-packAhead, c.n)
	}
	last := makeRef(ci, c.n-1)
	if b := a.read(last); hole(b).marked() {
		a.fill(last)
	} else {
		to := makeRef(ci, c.hole-1)
		a.fill(to)
		copy(a.write(to), b)
		a.owner.moved(last, to)
	}
	c.n--
	if c.n%c.per == 0 {
		c.dropSegment()
	}
}

func (c *class) dropSegment() {
	n := len(c.segs) - 1
	c.segs[n] = arenaSeg{} // or the list would keep its memory
	c.segs = c.segs[:n]
	if n <= cap(c.segs)/4 {
		c.segs = append(make([]arenaSeg, 0, 2*n), c.segs...)
	}
}
