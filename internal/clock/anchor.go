package clock

// Held is what a replica knows of decision time: the newest entry, in log order, that it holds. All
// readings are of this process's accumulator, in nanoseconds.
type Held struct {
	Time int64 // decision time of that entry; 0 with an empty log
	At   int64 // elapsed reading when it was stored; after a process start: when it was read back
}

// FirstEntry returns the decision time for the first entry of a new term that this replica leads,
// elapsed being the reading that stamps it: the held entry's time plus what has passed here since.
// The entry was stamped before it was stored, so that never exceeds the real time since its stamp.
// A replica that held it for longer than it knows (a restart, a freeze) counts less, never more.
//
// The newest entry counts even where an older one would give a later time: the older one may stem
// from before an outage in which the partition's time stood still, and would count that outage.
func (h Held) FirstEntry(elapsed int64) int64 { return since(h.Time, h.At, elapsed) }

// TermClock stamps the entries of one term: Time is the decision time of the term's first entry,
// At the elapsed reading that stamped it. It is made anew for each term and dies with it.
type TermClock struct {
	Time int64
	At   int64
}

// Stamp returns the decision time at the given elapsed reading.
func (c TermClock) Stamp(elapsed int64) int64 { return since(c.Time, c.At, elapsed) }

// since returns time moved on by what elapsed since at. A reading from before at, which only a
// caller's mistake can bring, moves nothing.
func since(time, at, elapsed int64) int64 {
	if elapsed <= at {
		return time
	}
	if at < 0 {
		at = 0 // readings are never negative; without this, elapsed - at could wrap
	}
	return addClamped(time, elapsed-at)
}
