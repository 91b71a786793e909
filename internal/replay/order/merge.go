package order

import (
	"cmp"
	"context"
	"slices"
)

// row is one row on its way out. Seq says which of the parts that were sorted by themselves it comes
// from; these are numbered in the order of Add, so it decides between rows of one time.
type row struct {
	time    int64
	seq     int
	payload []byte
}

// source gives rows in order. A row is good until the next call; false is the end.
type source interface {
	next() (row, bool, error)
}

// span is the time that a part takes, first and last row included.
type span struct {
	first, last int64
	seq         int
}

// chains puts parts that don't overlap behind each other, so that as few as possible are left to be
// merged. Where two parts touch in one time, the one with the rows that were added earlier comes first.
func chains(spans []span) [][]span {
	slices.SortFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last), cmp.Compare(a.seq, b.seq))
	})
	var all [][]span
	for _, s := range spans {
		i := slices.IndexFunc(all, func(chain []span) bool {
			end := chain[len(chain)-1]
			return end.last < s.first || end.last == s.first && end.seq < s.seq
		})
		if i < 0 {
			all = append(all, nil)
			i = len(all) - 1
		}
		all[i] = append(all[i], s)
	}
	return all
}

// head is the next row of a source, as far as it is compared.
type head struct {
	time int64
	seq  int
	from int // the source
}

func (a head) before(b head) bool {
	return a.time < b.time || a.time == b.time && a.seq < b.seq
}

// patience is how many rows pass between two looks at a context.
const patience = 1 << 12

// merge gives the rows of all sources in order.
func merge(ctx context.Context, sources []source, yield func(time int64, payload []byte) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	rows := make([]row, len(sources))
	heap := make([]head, 0, len(sources))
	for i, s := range sources {
		r, more, err := s.next()
		if err != nil {
			return err
		}
		if more {
			rows[i] = r
			heap = append(heap, head{r.time, r.seq, i})
		}
	}
	slices.SortFunc(heap, func(a, b head) int { return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.seq, b.seq)) })
	for n := 1; len(heap) > 0; n++ {
		if n%patience == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		from := heap[0].from
		if err := yield(rows[from].time, rows[from].payload); err != nil {
			return err
		}
		r, more, err := sources[from].next()
		if err != nil {
			return err
		}
		if more {
			rows[from] = r
			heap[0] = head{r.time, r.seq, from}
		} else {
			heap[0] = heap[len(heap)-1]
			heap = heap[:len(heap)-1]
		}
		sink(heap)
	}
	return nil
}

// sink puts the first head of a heap in its place. A heap, not a tree of losers: logs are nearly in order,
// so the first one mostly stays where it is, which takes two comparisons however many sources there are.
func sink(heap []head) {
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(heap); child++ {
			if heap[child].before(heap[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		heap[i], heap[least] = heap[least], heap[i]
		i = least
	}
}
