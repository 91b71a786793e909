package limit

import (
	"encoding/binary"
	"math/bits"
)

// The bytes of a log are pages, so that a sum or a time is found by a binary
// search over page headers and a scan of one page, and yet an event takes few bytes.
//
//	page 0:     the log's header, then entries
//	other ones: time of the entry before, sum of the costs before, then entries
//	entry:      uvarint(gap·2 + 1)                 an event of cost 1
//	            uvarint(gap·2 + 2), uvarint(cost)  any other
//
// gap is the time since the entry before, also across pages; the head entry's is
// ignored, its time stands in the header. Entries end with a byte
// that isn't 0; zeros fill the rest of a page into which the next entry
// didn't fit. Sums count from the beginning of the region, dropped entries
// included, and wrap around: only differences are used, and those fit.
//
// Dropping the first event only moves the head. The dead bytes before it go when
// the log is copied or runs out of room.

const (
	// page trades the headers' share (6 % at 256) against the bytes that a look-up scans.
	page       = 256
	pageHeader = LogHeader
)

// cursor stands before an entry: at is where the entry begins (the log's size if
// there is none), time and sum are those of the entries before it.
type cursor struct {
	at   int
	time int64
	sum  uint64
}

// entry decodes the entry at the given offset; next is where its bytes end.
func (l Log) entry(at int) (gap, cost uint64, next int) {
	v, next := uvarint(l.b, at)
	if v&1 != 0 {
		return v >> 1, 1, next
	}
	cost, next = uvarint(l.b, next)
	return v>>1 - 1, cost, next
}

// after is where the entry after the one at the given offset begins.
func (l Log) after(at int) int {
	_, _, next := l.entry(at)
	return l.land(next, l.size())
}

// land turns the end of an entry into the beginning of the next, or size.
func (l Log) land(at, size int) int {
	if at < size && (at%page == 0 || l.b[at] == 0) {
		return pageOf(at+page-1) + pageHeader
	}
	return at
}

func (l Log) step(c cursor) cursor {
	gap, cost, next := l.entry(c.at)
	return cursor{l.land(next, l.size()), c.time + int64(gap), c.sum + cost}
}

func pageOf(at int) int { return at &^ (page - 1) }

func (l Log) lastPage() int { return pageOf(l.size() - 1) }

func (l Log) pageTime(p int) int64 { return int64(binary.LittleEndian.Uint64(l.b[p:])) }

func (l Log) pageSum(p int) uint64 {
	if p == 0 {
		return 0
	}
	return binary.LittleEndian.Uint64(l.b[p+8:])
}

// pageEnd is where the entries of a page end that isn't the last.
func (l Log) pageEnd(p int) int {
	end := p + page
	for l.b[end-1] == 0 {
		end--
	}
	return end
}

// enter is the cursor before the first entry of page p, which lies behind the head's.
func (l Log) enter(p int) cursor {
	return cursor{p + pageHeader, l.pageTime(p), l.pageSum(p)}
}

// origin is the cursor before the head entry.
func (l Log) origin() cursor {
	head := l.head()
	gap, _, _ := l.entry(head)
	c := cursor{head, l.base() - int64(gap), 0}
	if pageOf(head) != l.lastPage() {
		c.sum = l.sumBefore(head)
	} // else no page header is in play, and sums may as well count from the head
	return c
}

// sumBefore is the sum of the costs before an entry or the end of a page's entries.
func (l Log) sumBefore(at int) uint64 {
	p := pageOf(at - 1)
	sum := l.pageSum(p)
	for i := p + pageHeader; i < at; {
		_, cost, next := l.entry(i)
		sum += cost
		i = next
	}
	return sum
}

// start is the cursor before the first event.
func (l Log) start() cursor {
	if l.none() {
		return l.end()
	}
	c := l.origin()
	if l.marked() {
		c = l.step(c)
	}
	return c
}

// tail is the cursor before the first entry of the last page.
func (l Log) tail() cursor {
	if p := l.lastPage(); p > pageOf(l.head()) {
		return l.enter(p)
	}
	return l.origin()
}

// end is the cursor behind the last entry. Its time is Forever if there is none.
func (l Log) end() cursor {
	if l.none() {
		return cursor{LogHeader, Forever, 0}
	}
	c, size := l.tail(), l.size()
	for c.at < size {
		gap, cost, next := l.entry(c.at)
		c = cursor{next, c.time + int64(gap), c.sum + cost}
	}
	return c
}

// last is the cursor before the last entry.
func (l Log) last() cursor {
	c, size := l.tail(), l.size()
	for {
		n := l.step(c)
		if n.at == size {
			return c
		}
		c = n
	}
}

// seek is the cursor before the first event later than after.
func (l Log) seek(after int64) cursor {
	c := l.start()
	if l.none() {
		return c
	}
	size := l.size()
	lo, hi := pageOf(c.at)/page, l.lastPage()/page
	for lo < hi { // the last page before which nothing is later
		if mid := (lo + hi + 1) / 2; l.pageTime(mid*page) <= after {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	if p := lo * page; p > pageOf(c.at) {
		c = l.enter(p)
	}
	for c.at < size {
		n := l.step(c)
		if n.time > after {
			break
		}
		c = n
	}
	return c
}

// reach is the time of the event with which the costs from c on reach need.
func (l Log) reach(c cursor, need uint64) int64 {
	if l.none() {
		return Never
	}
	size, from := l.size(), c.sum
	lo, hi := pageOf(c.at)/page, l.lastPage()/page
	for lo < hi { // the last page before which need isn't reached
		if mid := (lo + hi + 1) / 2; l.pageSum(mid*page)-from < need {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	if p := lo * page; p > pageOf(c.at) {
		c = l.enter(p)
	}
	for c.at < size {
		if c = l.step(c); c.sum-from >= need {
			return c.time
		}
	}
	return Never
}

// room is where an entry of n bytes goes in a log of the given size: behind the
// last one, or into a new page if it doesn't fit.
func room(size, n int) int {
	if rest := -size & (page - 1); n > rest {
		return size + rest + pageHeader
	}
	return size
}

// place is the size of the log once the entry is there.
func place(size, n int) int { return room(size, n) + n }

// write adds an entry at the end of the log, which is c.
func (l Log) write(c cursor, gap, cost uint64) {
	at := room(c.at, entrySize(gap, cost))
	if at != c.at {
		p := at - pageHeader
		clear(l.b[c.at:p])
		binary.LittleEndian.PutUint64(l.b[p:], uint64(c.time))
		binary.LittleEndian.PutUint64(l.b[p+8:], l.sumBefore(c.at))
	}
	if cost == 1 {
		at += binary.PutUvarint(l.b[at:], gap<<1+1)
	} else {
		at += binary.PutUvarint(l.b[at:], gap<<1+2)
		at += binary.PutUvarint(l.b[at:], cost)
	}
	l.setSize(at)
}

// entrySize is the length of an entry. A gap up to Never-1 fits: no event is at Never.
func entrySize(gap, cost uint64) int {
	if cost == 1 {
		return uvarintSize(gap<<1 + 1)
	}
	return uvarintSize(gap<<1+2) + uvarintSize(cost)
}

func uvarintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// uvarint decodes the number at the given offset. The bytes are our own, so
// unlike binary.Uvarint it doesn't look for malformed ones. Nearly all numbers
// are gaps of five to seven bytes: those are gathered from one word, since a loop
// over so few bytes costs more in mispredicted branches than in work.
func uvarint(b []byte, at int) (v uint64, next int) {
	if at+8 > len(b) {
		return uvarintSlow(b, at)
	}
	w := binary.LittleEndian.Uint64(b[at:])
	ends := ^w & 0x8080808080808080
	if ends == 0 {
		return uvarintSlow(b, at)
	}
	w &= ends ^ (ends - 1) // up to the last byte, the first without a top bit
	w = w&0x007f007f007f007f | w&0x7f007f007f007f00>>1
	w = w&0x00003fff00003fff | w&0x3fff00003fff0000>>2
	w = w&0x000000000fffffff | w&0x0fffffff00000000>>4
	return w, at + bits.TrailingZeros64(ends)/8 + 1
}

func uvarintSlow(b []byte, at int) (v uint64, next int) {
	for shift := 0; ; shift += 7 {
		c := b[at]
		at++
		if c < 0x80 {
			return v | uint64(c)<<shift, at
		}
		v |= uint64(c&0x7f) << shift
	}
}
