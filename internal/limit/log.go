package limit

import (
	"encoding/binary"
	"iter"
)

// Event is one admission: when it was decided and what it cost.
type Event struct {
	Time int64  // decision time, 0 or later
	Cost uint64 // 1..MaxAmount
}

// Log is the rolling log of one key: its events in order of time, and perhaps a
// marker where older events were forgotten. It is a view over bytes that the
// caller owns, so that a million logs need no pointer each; copying a Log
// copies the view. The zero Log is empty and has room for nothing.
//
// Where an entry lies in the bytes depends on the log's history. What a log
// answers doesn't: only its events and its marker count.
type Log struct{ b []byte }

const (
	// LogHeader is the size of an empty log in bytes.
	LogHeader = 16
	// MarkSize is what Mark adds to an empty log in bytes.
	MarkSize = 1
	// MaxLog is the largest region that a log can use in bytes.
	MaxLog = 1<<31 - 1
)

// InitLog makes an empty log in b, whose length is the log's capacity and at
// least LogHeader.
func InitLog(b []byte) Log {
	if len(b) < LogHeader || len(b) > MaxLog {
		panic("limit: a log's region is too small or too large")
	}
	l := Log{b}
	l.reset()
	return l
}

// OpenLog is the log in a region that InitLog or CopyTo has filled; len(b) is
// its capacity. An empty b gives the zero Log.
func OpenLog(b []byte) Log { return Log{b} }

// Size is how many bytes are in use, header included.
func (l Log) Size() int {
	if l.none() {
		return LogHeader
	}
	return l.size()
}

// Capacity is the length of the region in bytes.
func (l Log) Capacity() int { return len(l.b) }

// Empty reports whether the log holds no event. It may still hold a marker.
func (l Log) Empty() bool {
	return l.none() || l.marked() && l.start().at == l.size()
}

// First is the oldest event.
func (l Log) First() (Event, bool) {
	if l.none() {
		return Event{}, false
	}
	at, t := l.head(), l.base()
	if l.marked() {
		if at = l.after(at); at == l.size() {
			return Event{}, false
		}
		gap, _, _ := l.entry(at)
		t += int64(gap)
	}
	_, cost, _ := l.entry(at)
	return Event{t, cost}, true
}

// Last is the newest event.
func (l Log) Last() (Event, bool) {
	if l.Empty() {
		return Event{}, false
	}
	c := l.last()
	n := l.step(c)
	return Event{n.time, n.sum - c.sum}, true
}

// Units is the sum of all costs.
func (l Log) Units() uint64 { return l.end().sum - l.start().sum }

// Used is the sum of the costs of all events later than after.
func (l Log) Used(after int64) uint64 { return l.end().sum - l.seek(after).sum }

// FreedAt is the time of the event with which the costs, summed from the oldest
// event later than after, reach need (at least 1); Never if they don't. Once that
// event has left, need units are free.
func (l Log) FreedAt(after int64, need uint64) int64 { return l.reach(l.seek(after), need) }

// Events yields the events, oldest first. The log must not change meanwhile.
func (l Log) Events() iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for c := l.start(); c.at < l.Size(); {
			n := l.step(c)
			if !yield(Event{n.time, n.sum - c.sum}) {
				return
			}
			c = n
		}
	}
}

// Marker is the time of the newest event that was forgotten early, if any.
func (l Log) Marker() (int64, bool) {
	if l.none() || !l.marked() {
		return 0, false
	}
	return l.base(), true
}

// largeCost is the cost from which on Append looks at the sum. It is MaxAmount at
// most after a large cost, and the small ones after that add less than 2^63: each is
// below 2^32, and a region has no room for more than 2^31. So sums fit 64 bits.
const largeCost = 1 << 32

// Append adds an event. Its time may not lie before an earlier one's, its cost is
// 1..MaxAmount, the region has Need bytes, and with large costs Trim has seen to it
// that the units still fit; anything else panics.
func (l Log) Append(t int64, cost uint64) {
	c := l.end()
	if l.none() { // the first event is the base that later gaps count from
		l.reset()
		l.setBase(t)
		c.time = t
	}
	switch {
	case t < max(c.time, 0), t == Never:
		panic("limit: an event before its predecessor, or at no time")
	case cost == 0, cost > MaxAmount:
		panic("limit: an event's cost is out of range")
	case cost >= largeCost && l.Units() > lessUnits(MaxAmount, cost):
		panic("limit: a log's units overflow")
	}
	gap := uint64(t - c.time)
	if place(c.at, entrySize(gap, cost)) > len(l.b) {
		l.CopyTo(l.b)
		c = l.end()
	}
	l.write(c, gap, cost)
}

// Need is a capacity in bytes at which Append(t, cost) finds room. More than the region
// has means: CopyTo a larger one first, and a good deal larger (a quarter
// or more), or the copies add up. It counts on Append to reclaim dead space,
// where enough is dead to be worth the move.
func (l Log) Need(t int64, cost uint64) int {
	if l.none() {
		return LogHeader + entrySize(0, cost)
	}
	if enough := place(l.size(), entrySize(uint64(Never-1), cost)); enough <= len(l.b) {
		return enough
	}
	c := l.end()
	n := entrySize(uint64(t-c.time), cost)
	need := place(c.at, n)
	if need <= len(l.b) {
		return need
	}
	compact := l.CompactSize()
	if compact <= page || c.at-compact >= c.at/4 {
		return place(compact, n)
	}
	return need
}

// DropFirst drops the oldest event because it is too old to matter to anybody. A
// marker is older still: it goes too. It panics if there is no event.
func (l Log) DropFirst() {
	if l.Empty() {
		panic("limit: no event to drop")
	}
	l.ClearMarker()
	l.advance()
}

// DropLast drops the newest event, so that it can be appended again merged with
// a new one. It panics if there is no event.
func (l Log) DropLast() {
	if l.Empty() {
		panic("limit: no event to drop")
	}
	at := l.last().at
	switch {
	case at == l.head():
		l.reset()
	case at%page == pageHeader && at != pageHeader: // the only event of its page
		l.setSize(l.pageEnd(at - pageHeader - page))
	default:
		l.setSize(at)
	}
}

// Forget drops the oldest event though windows may still hold it, and leaves the
// marker at its time: a window that holds the marker is full. It
// panics if there is no event.
func (l Log) Forget() {
	if l.Empty() {
		panic("limit: no event to forget")
	}
	// The entry stays where it is and becomes the marker, in the place of an older one.
	l.ClearMarker()
	l.setHead(l.head(), true)
}

// Trim forgets the oldest events that no decision needs any more, given that cost
// is appended next, and returns how many. An event isn't needed when the later ones
// and cost hold at least most units, the largest amount that any check of this key
// can meet (MaxAmount where it is Unlimited): a window that holds it is full anyway. Nor
// is it when all of them exceed MaxAmount. After that Append finds that the units fit.
//
// Where a limit whose window covers the whole log has just allowed cost within a
// finite amount, there is nothing to trim.
func (l Log) Trim(most, cost uint64) int {
	units, forgotten := l.Units(), 0
	for {
		e, ok := l.First()
		if !ok || units-e.Cost < lessUnits(most, cost) && units <= lessUnits(MaxAmount, cost) {
			return forgotten
		}
		l.Forget()
		units -= e.Cost
		forgotten++
	}
}

// Mark sets the marker of a log without events, when it is built anew, to t or, if
// it has a later one, leaves that. It takes MarkSize bytes, and panics if
// there are events: Forget marks those.
func (l Log) Mark(t int64) {
	if !l.Empty() {
		panic("limit: a marker behind events")
	}
	if m, ok := l.Marker(); ok && m >= t {
		return
	}
	l.reset()
	l.setBase(t)
	l.write(cursor{LogHeader, t, 0}, 0, 1)
	l.setHead(LogHeader, true)
}

// ClearMarker removes the marker, if any, once no window can hold it.
func (l Log) ClearMarker() {
	if _, ok := l.Marker(); ok {
		l.setHead(l.head(), false)
		l.advance()
	}
}

// Merges reports whether an event at t is to be merged with the last one: with
// a precision (in nanoseconds, 0 for none), two events of one grain
// [k·precision, (k+1)·precision) become one.
func Merges(last, t, precision int64) bool {
	return precision > 0 && last/precision == t/precision
}

// Merged is the event to append for a cost at t under a precision, after Trim. Where the last
// event is of the same grain, that one is taken back, and the two are one event at
// the later time, which can only keep its units in the window longer.
func (l Log) Merged(t int64, cost uint64, precision int64) Event {
	last, ok := l.Last()
	if !ok || !Merges(last.Time, t, precision) {
		return Event{t, cost}
	}
	l.DropLast()
	return Event{t, last.Cost + cost}
}

// The header: where the head entry lies (the top bit says that it is the marker), how
// many bytes are in use, and the head entry's time.

const markBit = 1 << 31

func (l Log) none() bool   { return len(l.b) == 0 || l.head() == l.size() }
func (l Log) head() int    { return int(binary.LittleEndian.Uint32(l.b) &^ markBit) }
func (l Log) marked() bool { return l.b[3]&(markBit>>24) != 0 }
func (l Log) size() int    { return int(binary.LittleEndian.Uint32(l.b[4:])) }
func (l Log) base() int64  { return int64(binary.LittleEndian.Uint64(l.b[8:])) }

func (l Log) setHead(at int, marked bool) {
	word := uint32(at)
	if marked {
		word |= markBit
	}
	binary.LittleEndian.PutUint32(l.b, word)
}
func (l Log) setSize(n int)   { binary.LittleEndian.PutUint32(l.b[4:], uint32(n)) }
func (l Log) setBase(t int64) { binary.LittleEndian.PutUint64(l.b[8:], uint64(t)) }

func (l Log) reset() {
	l.setHead(LogHeader, false)
	l.setSize(LogHeader)
	l.setBase(0)
}

// advance moves the head to the next entry, or empties the log if there is none.
func (l Log) advance() {
	at := l.after(l.head())
	if at == l.size() {
		l.reset()
		return
	}
	gap, _, _ := l.entry(at)
	l.setHead(at, l.marked())
	l.setBase(l.base() + int64(gap))
}
