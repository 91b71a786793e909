package node

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/quorate/quorate/internal/partition"
)

// sight is how a replica was last seen: its start, and the process that made it. Another process that shows the
// number of that start, or less, runs on an old copy of the disk.
type sight struct {
	ID    string          `json:"id"`
	Group int             `json:"group"`
	Start partition.Start `json:"seen"`
	Run   uint64          `json:"run"`
}

// place is what a sight is of.
type seenAt struct {
	id    string
	group int
}

// notes are how replicas were last seen, kept in the node's folder. They are safe for concurrent use.
type notes struct {
	folder string

	mu    sync.Mutex
	known map[seenAt]sight
	dirty bool // what is known is more than what is written
}

func readNotes(folder string) (*notes, error) {
	n := &notes{folder: folder, known: map[seenAt]sight{}}
	var list []sight
	err := readDocument(filepath.Join(folder, startsFile), &list)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, s := range list {
		n.known[seenAt{s.ID, s.Group}] = s
	}
	return n, nil
}

// maxSights bounds what is noted: a node that makes up replicas can't fill the disk.
const maxSights = 1 << 16

// hear takes in how replicas show themselves, or refuses all of them if one is behind what is known of it, with
// [partition.ErrRewound]. What it took in is on disk when it returns.
func (n *notes) hear(shown []sight) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range shown {
		if err := n.judge(s); err != nil {
			return err
		}
	}
	return n.take(shown)
}

// merge takes in what somebody else knows of replicas.
func (n *notes) merge(known []sight) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.take(known)
}

func (n *notes) judge(s sight) error {
	was, known := n.known[seenAt{s.ID, s.Group}]
	if !known || s.Run == was.Run && !s.Start.Behind(was.Start) {
		return nil
	}
	if s.Start.Number > was.Start.Number && !s.Start.Behind(was.Start) {
		return nil
	}
	return fmt.Errorf("%w: the replica %s of partition %d shows start %d and entry %d of term %d; it was seen at start %d and entry %d of term %d",
		partition.ErrRewound, s.ID, s.Group, s.Start.Number, s.Start.Index, s.Start.Term, was.Start.Number, was.Start.Index, was.Start.Term)
}

// take never replaces what is known by less.
func (n *notes) take(shown []sight) error {
	for _, s := range shown {
		at := seenAt{s.ID, s.Group}
		was, known := n.known[at]
		if !known && len(n.known) >= maxSights {
			return fmt.Errorf("more than %d replicas are known", maxSights)
		}
		next := sight{s.ID, s.Group, was.Start.Later(s.Start), was.Run}
		if !known || s.Start.Number > was.Start.Number {
			next.Run = s.Run
		}
		n.dirty = n.dirty || next != was
		n.known[at] = next
	}
	return n.save()
}

// flush writes what is known and not written.
func (n *notes) flush() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.save()
}

func (n *notes) save() error {
	if !n.dirty {
		return nil
	}
	if err := replaceDocument(n.folder, startsFile, n.list()); err != nil {
		return fmt.Errorf("note how replicas were seen: %w", err)
	}
	n.dirty = false
	return nil
}

// all returns what is known.
func (n *notes) all() []sight {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.list()
}

func (n *notes) list() []sight {
	list := make([]sight, 0, len(n.known))
	for _, s := range n.known { // sorted below
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b sight) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Group, b.Group)) })
	return list
}
