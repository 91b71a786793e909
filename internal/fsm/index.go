package fsm

import (
	"encoding/binary"
	"math/bits"
)

const (
	bucketSlots  = 1024
	bucketGroups = bucketSlots / 8
	bucketFull   = bucketSlots * 7 / 8

	tagEmpty   = 0
	tagDeleted = 1
)

// index finds the rows of a table by hash. It keeps one byte of the hash and a
// row number per row (5 bytes), and leaves the comparison to its caller: a hash
// is a way to a row, never its identity.
//
// It is extendible hashing: a directory over small buckets. A bucket that fills
// up is split into two, so growth costs the work of one bucket at a time however
// large the index is.
type index struct {
	dir    []*bucket // by the hash's top depth bits
	depth  uint8
	live   int
	hashOf func(row uint32) uint64
	touch  func(rows []uint32) // reads what hashOf of these will read; nil: nothing
}

type bucket struct {
	depth  uint8
	used   uint16 // slots that are not empty
	live   uint16
	groups [bucketGroups]group
}

// group is eight slots: what one look compares at once lies side by side.
type group struct {
	tags [8]uint8
	rows [8]uint32
}

func newIndex(hashOf func(row uint32) uint64) index {
	return index{dir: []*bucket{{}}, hashOf: hashOf}
}

func (ix *index) bucketOf(hash uint64) *bucket {
	return ix.dir[hash>>1>>(63-ix.depth)]
}

func tagOf(hash uint64) uint8 {
	if t := uint8(hash); t > tagDeleted {
		return t
	}
	return uint8(hash) + 2
}

// probe walks the rows whose hash looks like the one sought.
type probe struct {
	b     *bucket
	want  uint64 // the tag in every byte
	match uint64 // high bit of each byte that matched in this group
	at    uint32 // the group
	left  uint32
}

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// zeroBytes sets the high bit of every byte of x that is zero. A byte above a
// zero one may be set wrongly, which costs a comparison and nothing else.
func zeroBytes(x uint64) uint64 { return (x - lowBits) &^ x & highBits }

func (g *group) word() uint64 { return binary.LittleEndian.Uint64(g.tags[:]) }

// matching returns the slots whose tags are all of want's bytes, the lowest of them surely.
func (g *group) matching(want uint64) uint64 { return zeroBytes(g.word() ^ want) }

// free returns the slots that hold no row, the lowest of them surely.
func (g *group) free() uint64 { return zeroBytes(g.word() &^ (lowBits * tagDeleted)) }

func (g *group) hasEmpty() bool { return g.matching(lowBits*tagEmpty) != 0 }

func (ix *index) probe(hash uint64) probe {
	b := ix.bucketOf(hash)
	p := probe{b: b, want: lowBits * uint64(tagOf(hash)), at: homeGroup(hash), left: bucketGroups}
	p.match = b.groups[p.at].matching(p.want)
	return p
}

func homeGroup(hash uint64) uint32 { return uint32(hash>>8) % bucketGroups }

// next returns the next candidate row.
func (p *probe) next() (row uint32, ok bool) {
	for {
		g := &p.b.groups[p.at]
		for p.match != 0 {
			slot := bits.TrailingZeros64(p.match) / 8
			p.match &= p.match - 1
			if g.tags[slot] == uint8(p.want) {
				return g.rows[slot], true
			}
		}
		p.left--
		if p.left == 0 || g.hasEmpty() {
			return 0, false
		}
		p.at = (p.at + 1) % bucketGroups
		p.match = p.b.groups[p.at].matching(p.want)
	}
}

// insert adds a row that is not in the index.
func (ix *index) insert(hash uint64, row uint32) {
	b := ix.bucketOf(hash)
	for b.used >= bucketFull {
		ix.split(hash)
		b = ix.bucketOf(hash)
	}
	b.put(hash, row)
	ix.live++
}

func (b *bucket) put(hash uint64, row uint32) {
	at := homeGroup(hash)
	free := b.groups[at].free()
	for free == 0 {
		at = (at + 1) % bucketGroups
		free = b.groups[at].free()
	}
	g, slot := &b.groups[at], bits.TrailingZeros64(free)/8
	if g.tags[slot] == tagEmpty {
		b.used++
	}
	g.tags[slot], g.rows[slot] = tagOf(hash), row
	b.live++
}

// split makes room around hash: it rebuilds the bucket without its deleted
// slots, into two buckets when the live rows alone nearly fill it.
func (ix *index) split(hash uint64) {
	old := ix.bucketOf(hash)
	if int(old.live) < bucketFull*3/4 {
		fresh := &bucket{depth: old.depth}
		ix.replace(hash, old, fresh, fresh)
		return
	}
	if old.depth == ix.depth {
		ix.double()
	}
	d := old.depth + 1
	ix.replace(hash, old, &bucket{depth: d}, &bucket{depth: d})
}

func (ix *index) double() {
	dir := make([]*bucket, 0, 2*len(ix.dir))
	for _, b := range ix.dir {
		dir = append(dir, b, b)
	}
	ix.dir, ix.depth = dir, ix.depth+1
}

// replace puts low and high where old stood and moves its rows to them.
func (ix *index) replace(hash uint64, old, low, high *bucket) {
	span := 1 << (ix.depth - old.depth)
	first := int(hash>>1>>(63-ix.depth)) &^ (span - 1)
	for i := range span {
		b := low
		if i >= span/2 && span > 1 {
			b = high
		}
		ix.dir[first+i] = b
	}
	live := make([]uint32, 0, bucketSlots)
	for i := range old.groups {
		g := &old.groups[i]
		for s, tag := range g.tags {
			if tag > tagDeleted {
				live = append(live, g.rows[s])
			}
		}
	}
	if ix.touch != nil {
		ix.touch(live)
	}
	for _, row := range live {
		h := ix.hashOf(row)
		ix.bucketOf(h).put(h, row)
	}
}

// remove takes a row out; it must be there.
func (ix *index) remove(hash uint64, row uint32) {
	for p := ix.probe(hash); ; {
		found, ok := p.next()
		if !ok {
			panic("fsm: removed a row that the index doesn't hold")
		}
		if found == row {
			p.b.clear(&p.b.groups[p.at], row)
			ix.shrink()
			return
		}
	}
}

// clear empties a row's slot. Where the group has an empty slot no probe ever went
// past it, so nothing needs to stay behind.
func (b *bucket) clear(g *group, row uint32) {
	slot := 0
	for g.tags[slot] <= tagDeleted || g.rows[slot] != row {
		slot++
	}
	b.live--
	if !g.hasEmpty() {
		g.tags[slot] = tagDeleted
		return
	}
	g.tags[slot] = tagEmpty
	b.used--
}

// shrink gives the memory of an index that has become empty back.
func (ix *index) shrink() {
	ix.live--
	if ix.live == 0 && ix.depth > 0 {
		touch := ix.touch
		*ix = newIndex(ix.hashOf)
		ix.touch = touch
	}
}
