package partition

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/hashicorp/raft"
)

// entryOverhead is what an entry costs on disk beside its own bytes, about.
const entryOverhead = 64

// weighedDisk knows what the entries of a log weigh, so that it can be compacted by bytes: an entry is
// anything between a tick of a few bytes and a batch of a megabyte.
type weighedDisk struct {
	disk

	mu      sync.Mutex
	entries []weight // in the order of their indexes
	gone    uint64   // what was weighed before the first of them
}

// weight is what an entry weighs with all that were weighed before it, in bytes: what some of them weigh together
// is a difference of two.
type weight struct{ index, sum uint64 }

func weigh(l *raft.Log) uint64 { return uint64(len(l.Data) + len(l.Extensions) + entryOverhead) }

// IsMonotonic says what the inner store says.
func (d *weighedDisk) IsMonotonic() bool {
	m, ok := d.disk.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

// load weighs what is there. Below a gap, which a snapshot that was installed can leave, there is only
// what is about to be deleted.
func (d *weighedDisk) load() error {
	last, err := d.LastIndex()
	if err != nil {
		return err
	}
	var newestFirst []weight
	for index := last; index > 0; index-- {
		var l raft.Log
		if err := d.GetLog(index, &l); errors.Is(err, raft.ErrLogNotFound) {
			break
		} else if err != nil {
			return err
		}
		newestFirst = append(newestFirst, weight{index, weigh(&l)})
	}
	for _, w := range slices.Backward(newestFirst) {
		d.add(w.index, w.sum)
	}
	return nil
}

// whole refuses a log with a hole: no crash leaves one, a disk that lost pages may.
func (d *weighedDisk) whole() error {
	first, err := d.FirstIndex()
	if err == nil && len(d.entries) > 0 && d.entries[0].index != first {
		err = fmt.Errorf("%w: log begins at %d, and has no entry %d", ErrDamaged, first, d.entries[0].index-1)
	}
	return err
}

// StoreLogs implements raft.LogStore.
func (d *weighedDisk) StoreLogs(logs []*raft.Log) error {
	if err := d.disk.StoreLogs(logs); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range logs {
		d.drop(d.at(l.Index), len(d.entries)) // one that is replaced, and what came after it
		d.add(l.Index, weigh(l))
	}
	return nil
}

// DeleteRange implements raft.LogStore.
func (d *weighedDisk) DeleteRange(low, high uint64) error {
	if err := d.disk.DeleteRange(low, high); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop(d.at(low), d.at(high+1))
	return nil
}

// at is the place of the first entry of an index, or above it.
func (d *weighedDisk) at(index uint64) int {
	return sort.Search(len(d.entries), func(i int) bool { return d.entries[i].index >= index })
}

func (d *weighedDisk) add(index, bytes uint64) {
	d.entries = append(d.entries, weight{index, d.sum() + bytes})
}

// sum is what all entries weigh with all that went before them.
func (d *weighedDisk) sum() uint64 {
	if len(d.entries) == 0 {
		return d.gone
	}
	return d.entries[len(d.entries)-1].sum
}

// drop forgets entries of one end: no others go (logStore.DeleteRange).
func (d *weighedDisk) drop(from, to int) {
	if from == 0 && to > 0 {
		d.gone = d.entries[to-1].sum
		d.entries = d.entries[to:]
		return
	}
	d.entries = slices.Delete(d.entries, from, to)
}

// bytes is what all entries weigh.
func (d *weighedDisk) bytes() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sum() - d.gone
}

// first is the index of the first entry; 0: there is none.
func (d *weighedDisk) first() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.entries) == 0 {
		return 0
	}
	return d.entries[0].index
}

// from is what the entry of an index and all behind it weigh.
func (d *weighedDisk) from(index uint64) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := d.at(index); at > 0 {
		return d.sum() - d.entries[at-1].sum
	}
	return d.sum() - d.gone
}

// within is how many of the newest entries weigh at most so many bytes together.
func (d *weighedDisk) within(bytes uint64) (entries uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sum := d.sum()
	if sum-d.gone <= bytes {
		return uint64(len(d.entries))
	}
	gone := sort.Search(len(d.entries), func(i int) bool { return sum-d.entries[i].sum <= bytes })
	return uint64(len(d.entries) - gone - 1)
}
