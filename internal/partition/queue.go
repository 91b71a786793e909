package partition

// queue holds calls that wait to be sealed: bounded as a whole, and fair between
// domains. Domains take turns when calls are taken out; and when it is full, a
// call of any other domain displaces the newest of the longest line, so that a
// domain that asks for more than its share loses its own calls and not its
// neighbours'.
type queue struct {
	bound int
	total int
	lines map[int32]*line
	turns []*line // lines that aren't empty, in order of their turn
}

type line struct {
	domain int32
	calls  []*Call
	head   int
}

func newQueue(bound int) *queue { return &queue{bound: bound, lines: map[int32]*line{}} }

func (l *line) len() int { return len(l.calls) - l.head }

// push adds a call. The call returned, if any, is the one that has no place.
func (q *queue) push(c *Call) (displaced *Call) {
	l := q.lines[c.check.Domain]
	if l == nil {
		l = &line{domain: c.check.Domain}
		q.lines[c.check.Domain] = l
	}
	if q.total == q.bound {
		longest := q.longest()
		if longest.len() <= l.len()+1 {
			return c
		}
		displaced = q.dropNewest(longest)
	}
	if l.len() == 0 {
		q.turns = append(q.turns, l)
	}
	l.calls = append(l.calls, c)
	q.total++
	return displaced
}

func (q *queue) longest() *line {
	longest := q.turns[0]
	for _, l := range q.turns[1:] {
		if l.len() > longest.len() {
			longest = l
		}
	}
	return longest
}

// dropNewest takes the newest call from a line of at least two.
func (q *queue) dropNewest(l *line) *Call {
	last := len(l.calls) - 1
	c := l.calls[last]
	l.calls[last] = nil
	l.calls = l.calls[:last]
	q.total--
	return c
}

// pop takes the next call: the oldest of the domain whose turn it is.
func (q *queue) pop() *Call {
	l := q.turns[0]
	c := l.calls[l.head]
	l.calls[l.head] = nil
	l.head++
	q.total--
	q.turns = q.turns[1:]
	if l.len() == 0 {
		l.calls, l.head = l.calls[:0], 0
		return c
	}
	if l.head > 1024 && l.head > len(l.calls)/2 {
		l.calls = append(l.calls[:0], l.calls[l.head:]...)
		l.head = 0
	}
	q.turns = append(q.turns, l)
	return c
}

// drain takes all calls out.
func (q *queue) drain() []*Call {
	var all []*Call
	for q.total > 0 {
		all = append(all, q.pop())
	}
	return all
}
