package client

import quotav1 "github.com/quorate/quorate/api/quota/v1"

// MaxHints is the bound of hints.
const MaxHints = maxHints

// Hints lets tests fill hints beyond what checks do in a test's time.
type Hints struct{ *hints }

func NewHints() Hints { return Hints{newHints()} }

func (h Hints) Put(key []byte, now, until int64) { h.put(key, &hint{ends: until, until: until}, now) }

func (h Hints) Len() int64 { return h.count.Load() }

// Budget is a retry budget by a clock of the test's.
type Budget struct{ *budget }

func NewBudget(now func() int64) Budget { return Budget{newBudget(now)} }

func (b Budget) Earn() { b.earn() }

func (b Budget) Take() bool { return b.take() }

const BudgetAtMost = budgetAtMost / repetition

// PutTogether puts together what nodes said, in this order.
func PutTogether(said ...*quotav1.PartitionVersion) map[uint32]*quotav1.SetVersion {
	e := &confirmed{Enforced: Enforced{Versions: map[uint32]*quotav1.SetVersion{}}, terms: map[uint32]uint64{}}
	for _, v := range said {
		e.take(v)
	}
	return e.Versions
}
