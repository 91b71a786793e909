package partition

import (
	"errors"
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
	total   uint64
}

// weight is what one entry weighs, in bytes.
type weight struct {
	index uint64
	bytes uint32
}

func weigh(l *raft.Log) weight {
	return weight{l.Index, uint32(len(l.Data) + len(l.Extensions) + entryOverhead)}
}

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
	for index := last; index > 0; index-- {
		var l raft.Log
		if err := d.GetLog(index, &l); errors.Is(err, raft.ErrLogNotFound) {
			break
		} else if err != nil {
			return err
		}
		l.Index = index
		d.entries = append(d.entries, weigh(&l))
		d.total += uint64(d.entries[len(d.entries)-1].bytes)
	}
	slices.Reverse(d.entries)
	return nil
}

// StoreLogs implements raft.LogStore.
func (d *weighedDisk) StoreLogs(logs []*raft.Log) error {
	if err := d.disk.StoreLogs(logs); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range logs {
		w := weigh(l)
		d.drop(d.at(w.index), len(d.entries)) // one that is replaced, and what came after it
		d.entries = append(d.entries, w)
		d.total += uint64(w.bytes)
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

func (d *weighedDisk) drop(from, to int) {
	for _, w := range d.entries[from:to] {
		d.total -= uint64(w.bytes)
	}
	d.entries = slices.Delete(d.entries, from, to)
}

// bytes is what all entries weigh.
func (d *weighedDisk) bytes() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.total
}

// within is how many of the newest entries weigh at most so many bytes together.
func (d *weighedDisk) within(bytes uint64) (entries uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := len(d.entries) - 1; i >= 0 && uint64(d.entries[i].bytes) <= bytes; i-- {
		bytes -= uint64(d.entries[i].bytes)
		entries++
	}
	return entries
}
