package power_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/internal/partition"
)

// inspect starts a replica from what a loss of power left, and says what is wrong with it: nothing, if it holds
// exactly one of these states, and goes on from there.
func inspect(folder string, may []*state) (found *state, err error) {
	r := &replica{folder: folder}
	if err := partition.MakeFolders(folder); err != nil { // the node does, before it opens a replica
		return nil, err
	}
	if err := r.open(); err != nil {
		return nil, refusedError{err}
	}
	defer func() { err = errors.Join(err, r.stores.Close()) }()
	found, err = r.match(may)
	if err == nil {
		err = r.goOn(found)
	}
	if r.fatal != nil {
		err = refusedError{r.fatal}
	}
	return found, err
}

// refusedError is what the product itself noticed.
type refusedError struct{ error }

func (e refusedError) Unwrap() error { return e.error }

// match returns the state that is there.
func (r *replica) match(may []*state) (*state, error) {
	var all error
	for i := len(may) - 1; i >= 0; i-- {
		err := r.compare(may[i])
		if err == nil {
			return may[i], nil
		}
		all = errors.Join(all, fmt.Errorf("not state %d of %d: %w", i+1, len(may), err))
	}
	return nil, all
}

func (r *replica) compare(s *state) error {
	first, err := r.stores.Log.FirstIndex()
	last, lerr := r.stores.Log.LastIndex()
	if err := errors.Join(err, lerr); err != nil {
		return err
	}
	if last != s.last() || last > 0 && first != s.first {
		return fmt.Errorf("log holds %d to %d, want %d to %d", first, last, s.first, s.last())
	}
	for i := range s.entries {
		want := &s.entries[i]
		var l raft.Log
		if err := r.stores.Log.GetLog(want.Index, &l); err != nil {
			return err
		}
		if l.Index != want.Index || l.Term != want.Term || l.Type != want.Type || !bytes.Equal(l.Data, want.Data) {
			return fmt.Errorf("entry %d isn't what was stored", want.Index)
		}
	}
	return errors.Join(r.compareStable(s), r.compareSnapshot(s))
}

func (r *replica) compareStable(s *state) error {
	for _, key := range []string{"CurrentTerm", "LastVoteTerm", "LastVoteCand"} {
		value, err := r.stores.Stable.Get([]byte(key))
		if err != nil && err.Error() != "not found" {
			return err
		}
		if string(value) != s.stable[key] {
			return fmt.Errorf("%s is %x, want %x", key, value, s.stable[key])
		}
	}
	seen, err := r.stores.Seen()
	switch {
	case s.start == 0 && err != nil && err.Error() == "not found":
		return nil
	case err == nil && seen != s.seen():
		err = fmt.Errorf("seen as %+v, want %+v", seen, s.seen())
	}
	return err
}

func (r *replica) compareSnapshot(s *state) error {
	list, err := r.stores.Snapshots.List()
	if err != nil {
		return err
	}
	if s.snapshot.index == 0 {
		if len(list) > 0 {
			return fmt.Errorf("%d snapshots, want none", len(list))
		}
		return nil
	}
	if len(list) == 0 || list[0].Index != s.snapshot.index || list[0].Term != s.snapshot.term {
		return fmt.Errorf("%d snapshots, want %v first", len(list), s.snapshot)
	}
	_, reader, err := r.stores.Snapshots.Open(list[0].ID)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(reader)
	if err = errors.Join(err, reader.Close()); err == nil && !bytes.Equal(b, s.snapshot.content()) {
		err = fmt.Errorf("%v holds something else", s.snapshot)
	}
	return err
}

// goOn begins a start, has Raft stand on what is there, and stores another entry, which is there at the next start
// with all others.
func (r *replica) goOn(s *state) error {
	started, err := r.stores.BeginStart()
	if err != nil {
		return err
	}
	if started.Number != s.start+1 {
		return fmt.Errorf("start number %d, want %d", started.Number, s.start+1)
	}
	if want := s.heldTime(); r.stores.Held().Time != want {
		return fmt.Errorf("held time is %d, want %d", r.stores.Held().Time, want)
	}
	if err := r.raft(); err != nil {
		return err
	}
	term, index := s.newest()
	next := raft.Log{Index: index + 1, Term: term + 1, Data: binary.BigEndian.AppendUint64(make([]byte, 8), term+1)}
	if err := r.stores.Log.StoreLog(&next); err != nil {
		return err
	}
	if err := r.stores.Close(); err != nil {
		return err
	}
	if err := checkPages(filepath.Join(r.folder, "raft.db")); err != nil {
		return err
	}
	if err := r.open(); err != nil {
		return err
	}
	then := *s
	if then.start++; len(s.entries) == 0 {
		then.first = next.Index
	}
	then.entries = append(s.entries[:len(s.entries):len(s.entries)], next)
	if _, voted := s.stable["CurrentTerm"]; !voted { // the library writes the term that it read
		then.stable = map[string]string{"CurrentTerm": "\x00\x00\x00\x00\x00\x00\x00\x00"}
	}
	return r.compare(&then)
}

// heldTime is the decision time of the newest thing held.
func (s *state) heldTime() int64 {
	if n := len(s.entries); n > 0 && s.entries[n-1].Index > s.snapshot.index {
		return timeIn(s.entries[n-1].Data)
	}
	return s.snapshot.at
}

// raft starts the library on the stores, and stops it.
func (r *replica) raft() error {
	config := raft.DefaultConfig()
	config.LocalID, config.Logger = "a", hclog.NewNullLogger()
	_, transport := raft.NewInmemTransport("a")
	library, err := raft.NewRaft(config, nothing{}, r.stores.Log, r.stores.Stable, r.stores.Snapshots, transport)
	if err != nil {
		return fmt.Errorf("start raft: %w", err)
	}
	return library.Shutdown().Error()
}

// nothing is a state machine that remembers nothing.
type nothing struct{}

func (nothing) Apply(*raft.Log) any                  { return nil }
func (nothing) Snapshot() (raft.FSMSnapshot, error)  { return nil, errors.New("nothing to save") }
func (nothing) Restore(snapshot io.ReadCloser) error { return snapshot.Close() }

// checkPages has bbolt look for pages that are lost, used twice or in a place where they don't belong.
func checkPages(path string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, PreLoadFreelist: true})
	if err != nil {
		return err
	}
	err = db.View(func(tx *bbolt.Tx) (all error) {
		for err := range tx.Check() {
			all = errors.Join(all, err)
		}
		return all
	})
	return errors.Join(err, db.Close())
}
