package partition

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft"
)

// keepSnapshots is how many snapshots stay on disk.
const keepSnapshots = 2

// snapshotStore is the library's file snapshot store, every error of which ends the stores, and which
// tells the log of each snapshot that is finished.
type snapshotStore struct {
	files raft.SnapshotStore
	guard *diskGuard
	log   *logStore
	cache *raft.LogCache // above the log
}

var _ raft.SnapshotStore = (*snapshotStore)(nil)

// Create implements raft.SnapshotStore.
func (s *snapshotStore) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, t raft.Transport) (raft.SnapshotSink, error) {
	var sink raft.SnapshotSink
	err := s.guard.do("create snapshot", nil, func() (err error) {
		sink, err = s.files.Create(version, index, term, c, ci, t)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &snapshotSink{sink: sink, store: s, index: index, term: term}, nil
}

// List implements raft.SnapshotStore.
func (s *snapshotStore) List() (list []*raft.SnapshotMeta, err error) {
	err = s.guard.do("list snapshots", nil, func() (err error) { list, err = s.files.List(); return err })
	return list, err
}

// Open implements raft.SnapshotStore. A snapshot that isn't there any more, because newer ones
// replaced it after it was listed, is no failure.
func (s *snapshotStore) Open(id string) (meta *raft.SnapshotMeta, r io.ReadCloser, err error) {
	err = s.guard.do("open snapshot", fs.ErrNotExist, func() (err error) { meta, r, err = s.files.Open(id); return err })
	return meta, r, err
}

// snapshotSink is one snapshot being written, by this replica or by a leader that installs it.
type snapshotSink struct {
	sink        raft.SnapshotSink
	store       *snapshotStore
	index, term uint64
	done        bool
}

// ID implements raft.SnapshotSink.
func (s *snapshotSink) ID() string { return s.sink.ID() }

// Write implements raft.SnapshotSink.
func (s *snapshotSink) Write(b []byte) (n int, err error) {
	err = s.store.guard.do("write snapshot", nil, func() (err error) { n, err = s.sink.Write(b); return err })
	return n, err
}

// Cancel drops the snapshot. What it can't remove is swept at the next start.
func (s *snapshotSink) Cancel() error {
	s.done = true
	return s.store.guard.do("cancel snapshot", nil, s.sink.Cancel)
}

// Close makes the snapshot durable and then settles what it means for the log.
func (s *snapshotSink) Close() error {
	if s.done {
		return nil // cancelled, or closed before
	}
	s.done = true
	if err := s.store.guard.do("finish snapshot", nil, s.sink.Close); err != nil {
		return err
	}
	err := s.store.guard.do("compare log and snapshot", errSuperseded, func() error {
		return s.store.log.snapshotFinished(s.index, s.term)
	})
	if err != nil {
		return err
	}
	return s.store.forget()
}

// forget empties the cache above the log, which may have been wiped beneath it: what a deposed leader never got to
// anybody must not be handed out again. No range at all does it.
func (s *snapshotStore) forget() error { return s.cache.DeleteRange(1, 0) }

// temporarySuffix ends the name of what isn't all there yet.
const temporarySuffix = ".tmp"

// snapshotFiles is the library's file snapshot store, with names that last. The library syncs a snapshot's files, and the
// folder in which it renames the snapshot's own, but not that one: a loss of power could leave a snapshot without its
// state, and a log that was compacted behind it.
type snapshotFiles struct {
	raft.SnapshotStore
	folder string // of all snapshots
}

// Create implements raft.SnapshotStore. The library makes both files, if empty, before it hands out the sink.
func (s snapshotFiles) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, t raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, c, ci, t)
	if err != nil {
		return nil, err
	}
	if err := SyncFolder(filepath.Join(s.folder, sink.ID()+temporarySuffix)); err != nil {
		return nil, errors.Join(err, sink.Cancel())
	}
	return sink, nil
}

// errSuperseded says that a snapshot was finished when a newer one was there.
var errSuperseded = errors.New("a newer snapshot is there already")

// snapshotFinished settles what a new snapshot means for held. One taken from this log changes
// nothing. One that reaches beyond the log was installed by a leader, and is now the newest thing
// that this replica holds: going on from its own older entry would count an outage that the others
// did not (see clock.Held).
//
// One that contradicts the log proves that the log's tail is of a deposed leader. Raft should discard
// it; the library keeps it and could win an election with it. So the stores end here, and discard it
// when they are opened again.
//
// One of our own that was being written while a leader installed a newer one says nothing of the log,
// which now begins behind that. Raft is told so, lest it take the older one for its newest.
func (s *logStore) snapshotFinished(index, term uint64) error {
	newest, err := newestSnapshot(s.snapshots)
	if err != nil {
		return err
	}
	if newest.Index > index {
		return errSuperseded
	}
	last, err := s.disk.LastIndex()
	if err != nil {
		return err
	}
	if last < index {
		s.beginsBehind(index, term)
		return errors.Join(s.wipe(last), s.readBack())
	}
	same, err := s.extends(index, term)
	if err == nil && !same {
		err = fmt.Errorf("log contradicts the snapshot of index %d, term %d: restart to discard it", index, term)
	}
	return err
}

// extends tells whether the log holds the entry that a snapshot ends with, or begins right behind it.
func (s *logStore) extends(index, term uint64) (bool, error) {
	var l raft.Log
	err := s.get(index, &l)
	if errors.Is(err, raft.ErrLogNotFound) {
		first, err := s.disk.FirstIndex()
		return first == index+1, err
	}
	return err == nil && l.Term == term, err
}

// reconcile discards a log that contradicts the newest snapshot, and refuses one that doesn't join
// on to it.
func (s *logStore) reconcile() error {
	snapshot, err := newestSnapshot(s.snapshots)
	if err != nil {
		return err
	}
	first, err := s.disk.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.disk.LastIndex()
	switch {
	case err != nil:
		return err
	case first > snapshot.Index+1:
		return fmt.Errorf("%w: log begins at %d, newest snapshot ends at %d", ErrDamaged, first, snapshot.Index)
	case snapshot.Index == 0:
		return nil
	case last < snapshot.Index:
		s.beginsBehind(snapshot.Index, snapshot.Term)
		return s.wipe(last)
	}
	same, err := s.extends(snapshot.Index, snapshot.Term)
	if err != nil {
		return err
	}
	if !same || first == snapshot.Index+1 {
		s.beginsBehind(snapshot.Index, snapshot.Term)
	}
	if same {
		return nil
	}
	return s.wipe(last)
}

// wipe deletes a log that a snapshot replaces, up to the last entry that was
// compared with it: what is appended since must stay. What ends before an installed
// snapshot must go with it: the library would leave it, log on behind the
// snapshot, and the hole between would make the next start take what is behind it
// for a deposed leader's.
func (s *logStore) wipe(last uint64) error {
	first, err := s.disk.FirstIndex()
	if err != nil || first == 0 || first > last {
		return err
	}
	return s.disk.DeleteRange(first, last)
}

// newestSnapshot returns the zero value where there is none.
func newestSnapshot(s raft.SnapshotStore) (raft.SnapshotMeta, error) {
	list, err := s.List()
	if err != nil || len(list) == 0 {
		return raft.SnapshotMeta{}, err
	}
	return *list[0], nil
}

// sweep removes what a process that ended left half written of a replica, documents and snapshots; the
// library never does. Whoever calls it holds the log, so nobody else writes there.
func sweep(folder string) error {
	var all error
	for _, where := range []string{folder, filepath.Join(folder, snapshotsName)} {
		entries, err := os.ReadDir(where)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, err)
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), temporarySuffix) {
				all = errors.Join(all, os.RemoveAll(filepath.Join(where, e.Name())))
			}
		}
	}
	return all
}
