package fsm

// due is when a key should be looked at: the decision time, in whole seconds,
// from which nothing that it holds was known to count any more.
type due struct {
	second uint32
	slot   uint32
}

func (d due) before(o due) bool {
	return d.second < o.second || d.second == o.second && d.slot < o.slot
}

// expiry orders all keys by due. A key that is used stays where it was filed
// and is filed anew only when its old turn comes, so using a key costs the
// queue nothing. Slots break ties: they are part of the state, so every replica
// takes keys out in the same order wherever they lie in the heap.
//
// A heap of four children a node: half the levels of a binary one, and the
// children share a cache line.
type expiry struct{ heap table[due] }

func (e *expiry) len() int { return int(e.heap.len()) }

// first returns the earliest due; the queue must not be empty.
func (e *expiry) first() due { return *e.heap.at(0) }

func (e *expiry) push(d due) {
	i := e.heap.push(d)
	for i > 0 {
		parent := (i - 1) / 4
		p := *e.heap.at(parent)
		if !d.before(p) {
			break
		}
		*e.heap.mut(i) = p
		i = parent
	}
	*e.heap.mut(i) = d
}

// refile puts d in the place of the earliest.
func (e *expiry) refile(d due) {
	i, n := uint32(0), e.heap.len()
	for {
		child, ok := e.leastChild(i, n)
		if !ok || !e.heap.at(child).before(d) {
			break
		}
		*e.heap.mut(i) = *e.heap.at(child)
		i = child
	}
	*e.heap.mut(i) = d
}

func (e *expiry) leastChild(i, n uint32) (least uint32, ok bool) {
	first := 4*i + 1
	if first >= n {
		return 0, false
	}
	least = first
	for c := first + 1; c < min(first+4, n); c++ {
		if e.heap.at(c).before(*e.heap.at(least)) {
			least = c
		}
	}
	return least, true
}

// pop drops the earliest.
func (e *expiry) pop() {
	last := *e.heap.at(e.heap.len() - 1)
	e.heap.pop()
	if e.heap.len() > 0 {
		e.refile(last)
	}
}
