package trace

import (
	"cmp"
	"slices"
)

// Event is the beginning or the end of a call.
type Event struct {
	*Call
	End bool
}

// Events are all beginnings and ends in the order in which they came.
func Events(calls []*Call) []Event {
	events := make([]Event, 0, 2*len(calls))
	for _, c := range calls {
		events = append(events, Event{Call: c})
		if c.Ended > 0 {
			events = append(events, Event{c, true})
		}
	}
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.line(), b.line()) })
	return events
}

func (e Event) line() int {
	if e.End {
		return e.Ended
	}
	return e.Began
}
