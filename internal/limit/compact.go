package limit

import (
	"encoding/binary"
	"math"
)

// Dead bytes go in whole pages, or all of them where the live entries fit a single
// page: their bytes don't depend on where pages end, so they only move together. A log
// of many pages keeps what is dead in its first one.

// flat is the size that the live entries have in a single page, or something
// larger than a page if they don't fit one.
func (l Log) flat() int {
	head, size := l.head(), l.size()
	p, q := pageOf(head), l.lastPage()
	_, next := uvarint(l.b, head)
	switch q - p {
	case 0:
		return pageHeader + 1 + size - next
	case page:
		return pageHeader + 1 + l.pageEnd(p) - next + size - (q + pageHeader)
	}
	return math.MaxInt
}

// CompactSize is how many bytes the log has after CopyTo.
func (l Log) CompactSize() int {
	if l.none() {
		return LogHeader
	}
	if n := l.flat(); n <= page {
		return n
	}
	return l.size() - pageOf(l.head())
}

// CopyTo copies the log into dst, without dead space, and returns the copy: the
// same events and marker in CompactSize bytes, the new capacity being len(dst).
// dst may be the log's own region.
func (l Log) CopyTo(dst []byte) Log {
	c := region(dst)
	if len(dst) < l.CompactSize() { // copy would shorten the log in silence
		panic("limit: a copy without room")
	}
	switch {
	case l.none():
		c.reset()
	case l.flat() <= page:
		l.copyFlat(c)
	default:
		l.copyPages(c)
	}
	return c
}

// copyFlat copies what fits a single page. All moves go down, in order, so
// that nothing is overwritten before it has moved.
func (l Log) copyFlat(c Log) {
	head, size := l.head(), l.size()
	p, q := pageOf(head), l.lastPage()
	v, next := uvarint(l.b, head)
	c.b[pageHeader] = byte(2 - v&1) // the head's gap is ignored: now it is 0
	n := pageHeader + 1
	if p != q {
		n += copy(c.b[n:], l.b[next:l.pageEnd(p)])
		next = q + pageHeader
	}
	n += copy(c.b[n:], l.b[next:size])
	copy(c.b, l.b[:LogHeader]) // base and flags
	c.setHead(pageHeader)
	c.setSize(n)
}

// copyPages copies the pages that hold live entries and takes the sum before
// them off their headers.
func (l Log) copyPages(c Log) {
	head, size := l.head(), l.size()
	p := pageOf(head)
	before := l.pageSum(p)
	copy(c.b[pageHeader:size-p], l.b[p+pageHeader:size])
	copy(c.b, l.b[:LogHeader]) // base and flags
	c.setHead(head - p)
	c.setSize(size - p)
	for q := page; q < size-p; q += page {
		binary.LittleEndian.PutUint64(c.b[q+8:], c.pageSum(q)-before)
	}
}
