package sim

import (
	"maps"
	"slices"

	"github.com/hashicorp/raft"
)

// image is what a disk holds of a log and of votes: what raft-boltdb's file holds, as its readers see it.
type image struct {
	entries     map[uint64]*raft.Log // never changed once they are here
	first, last uint64               // 0: none
	stable      map[string][]byte
}

func newImage() *image {
	return &image{entries: map[uint64]*raft.Log{}, stable: map[string][]byte{}}
}

func (m *image) clone() *image {
	return &image{entries: maps.Clone(m.entries), first: m.first, last: m.last, stable: maps.Clone(m.stable)}
}

// page is a part of a transaction that reaches the disk or doesn't, on its own.
type page struct {
	entry     *raft.Log // is stored
	low, high uint64    // are deleted
	key       string    // gets value
	value     []byte
}

func (m *image) write(p *page) {
	switch {
	case p.entry != nil:
		m.entries[p.entry.Index] = p.entry
		m.last = max(m.last, p.entry.Index)
		if m.first == 0 || p.entry.Index < m.first {
			m.first = p.entry.Index
		}
	case p.high > 0:
		m.remove(p.low, p.high)
	default:
		m.stable[p.key] = p.value
	}
}

func (m *image) remove(low, high uint64) {
	for i := max(low, m.first); i <= min(high, m.last); i++ {
		delete(m.entries, i)
	}
	if len(m.entries) == 0 {
		m.first, m.last = 0, 0
		return
	}
	for m.first <= m.last && m.entries[m.first] == nil {
		m.first++
	}
	for m.last > m.first && m.entries[m.last] == nil {
		m.last--
	}
}

// damaged is what is read of a page that was half written.
func (p *page) damaged(s *stream) *page {
	torn := *p
	switch {
	case p.entry != nil:
		entry := *p.entry
		entry.Data = flip(entry.Data, s)
		entry.Extensions = flip(entry.Extensions, s)
		torn.entry = &entry
	case p.key != "":
		torn.value = flip(p.value, s)
	}
	return &torn
}

func flip(b []byte, s *stream) []byte {
	if len(b) == 0 {
		return b
	}
	spoiled := slices.Clone(b)
	spoiled[s.below(len(b))] ^= byte(1 + s.below(255))
	return spoiled
}

// transaction is what one call writes: pages, then, once they are synced, a meta page that makes them count.
type transaction struct{ pages []*page }

// afterLoss is what a disk holds after a loss of power: what was synced, and of what was written since whatever
// got there. A transaction whose meta page didn't get there, or got there torn, which its checksum tells, never
// happened. One whose meta page did is there with all its pages, because they were synced before.
func afterLoss(synced *image, unsynced []transaction, s *stream, b Breaks) (left *image, torn int) {
	left = synced.clone()
	counts := 0 // so many of them happened
	for i := range unsynced {
		switch s.below(3) {
		case 0: // lost
		case 1:
			torn++
		default:
			counts = i + 1
		}
	}
	if b.LoseNewest {
		counts = s.below(len(unsynced) + 1)
	}
	for _, t := range unsynced[:counts] {
		for _, p := range t.pages {
			torn += left.writeAfterLoss(p, s, b)
		}
	}
	return left, torn
}

// writeAfterLoss writes a page of a transaction that counts. Where syncs are ignored it may have got lost or be torn.
func (m *image) writeAfterLoss(p *page, s *stream, b Breaks) (torn int) {
	switch {
	case !b.IgnoreSync || s.below(4) > 1:
		m.write(p)
	case s.below(2) == 0:
		m.write(p.damaged(s))
		return 1
	}
	return 0
}
