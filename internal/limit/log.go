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
	l := region(b)
	l.reset()
	return l
}

func region(b []byte) Log {
	if len(b) < LogHeader || len(b) > MaxLog {
		panic("limit: a log's region is too small or too large")
	}
	return Log{b}
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

// largeCost is the cost from which on a log has to look at its sum: a region has room
// for 2^31 events at most, so sums of smaller costs fit 63 bits.
const largeCost = 1 << 32

// Append adds an event. Its time may not lie before an earlier one's, its cost is
// 1..MaxAmount, the region has Need bytes, and what was in Excess is forgotten, so
// that the units fit 64 bits; anything else panics.
func (l Log) Append(t int64, cost uint64) {
	if l.TryAppend(t, cost) {
		return
	}
	l.CopyTo(l.b)
	if !l.TryAppend(t, cost) {
		panic("limit: no room for an event")
	}
}

// TryAppend is Append where there is room as the log lies; where there isn't it reports
// false and adds nothing. It saves those who have room from asking for the Need.
func (l Log) TryAppend(t int64, cost uint64) bool {
	c := l.end()
	if l.none() { // the first event is the base that later gaps count from
		l.reset()
		l.setBase(t)
		c.time = t
	}
	if cost >= largeCost {
		l.setFlag(largeFlag)
	}
	switch {
	case t < max(c.time, 0), t == Never:
		panic("limit: an event before its predecessor, or at no time")
	case cost == 0, cost > MaxAmount:
		panic("limit: an event's cost is out of range")
	case l.flag(largeFlag) && l.Units()+cost < cost:
		panic("limit: a log's units overflow")
	}
	gap := uint64(t - c.time)
	if place(c.at, entrySize(gap, cost)) > len(l.b) {
		return false
	}
	l.write(c, gap, cost)
	return true
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
	l.setFlag(markFlag)
}

// Excess is the oldest event, if no decision needs it any more once cost is appended:
// the later ones and cost hold at least most units, the largest amount that any
// check of this key can meet, so a window that holds the event is full anyway. The
// caller forgets it and asks again. most is at most MaxAmount, also where the
// amount is Unlimited; then Append finds that the units fit.
//
// Where a limit whose window covers the whole log has just allowed cost within a
// finite amount, nothing is in excess.
func (l Log) Excess(most, cost uint64) (Event, bool) {
	e, ok := l.First()
	if !ok || l.Units()-e.Cost < lessUnits(min(most, MaxAmount), cost) {
		return Event{}, false
	}
	return e, true
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
	l.setFlag(markFlag)
}

// ClearMarker removes the marker, if any, once no window can hold it.
func (l Log) ClearMarker() {
	if _, ok := l.Marker(); ok {
		l.clearFlag(markFlag)
		l.advance()
	}
}

// Merges reports whether an event at t is to be merged with the last one: with
// a precision (in nanoseconds, 0 for none), two events of one grain
// [k·precision, (k+1)·precision) become one. The caller drops the last event and appends
// it Merged.
func Merges(last, t, precision int64) bool {
	return precision > 0 && last/precision == t/precision
}

// Merged is e and a cost at t, which isn't earlier, as one event. It is at t: later
// than e was, so that its units can only stay in the window longer. Its cost stops at
// MaxAmount, which fills any window.
func (e Event) Merged(t int64, cost uint64) Event {
	return Event{t, min(addUnits(e.Cost, cost), MaxAmount)}
}

// The header: where the head entry lies, how many bytes are in use, and the head
// entry's time. A region is shorter than 2^31, which leaves a bit in either word: the
// head entry is the marker; some cost has been large since the log was last empty.

const (
	markFlag  = 3 // the byte whose top bit it is
	largeFlag = 7
	flagBit   = 0x80
)

func (l Log) none() bool      { return len(l.b) == 0 || l.head() == l.size() }
func (l Log) marked() bool    { return l.flag(markFlag) }
func (l Log) flag(f int) bool { return l.b[f]&flagBit != 0 }
func (l Log) setFlag(f int)   { l.b[f] |= flagBit }
func (l Log) clearFlag(f int) { l.b[f] &^= flagBit }

func (l Log) head() int   { return l.word(0) }
func (l Log) size() int   { return l.word(4) }
func (l Log) base() int64 { return int64(binary.LittleEndian.Uint64(l.b[8:])) }

func (l Log) setHead(at int)  { l.setWord(0, at) }
func (l Log) setSize(n int)   { l.setWord(4, n) }
func (l Log) setBase(t int64) { binary.LittleEndian.PutUint64(l.b[8:], uint64(t)) }

// word and setWord leave the flag alone.
func (l Log) word(at int) int { return int(binary.LittleEndian.Uint32(l.b[at:]) &^ (flagBit << 24)) }

func (l Log) setWord(at, v int) {
	flag := uint32(l.b[at+3]&flagBit) << 24
	binary.LittleEndian.PutUint32(l.b[at:], uint32(v)|flag)
}

func (l Log) reset() {
	clear(l.b[:LogHeader])
	l.setHead(LogHeader)
	l.setSize(LogHeader)
}

// advance moves the head to the next entry, or empties the log if there is none.
func (l Log) advance() {
	at := l.after(l.head())
	if at == l.size() {
		l.reset()
		return
	}
	gap, _, _ := l.entry(at)
	l.setHead(at)
	l.setBase(l.base() + int64(gap))
}
