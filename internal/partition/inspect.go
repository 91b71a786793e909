package partition

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/quorate/quorate/internal/fsm"
)

// ErrLocked says that another process has the replica's folder open.
var ErrLocked = errors.New("another process has the replica's folder open")

// lockTimeout is how long another process may still take to let go of a folder.
const lockTimeout = 2 * time.Second

var (
	// ErrLogLost says that a replica's log, with its votes, is gone or older than its snapshots.
	ErrLogLost = errors.New("the log is lost beside its snapshots")
	// ErrRewound says that a replica's disk holds less than others saw it hold: an old copy was put back.
	// What it acknowledged since, and its votes, are gone, so it is a lost disk.
	ErrRewound = errors.New("the disk is an old copy of itself")
)

// ErrNoMember says that a disk isn't one that its cluster was founded on: what it notes counts for nobody.
var ErrNoMember = errors.New("this disk is none of the cluster's")

// Holdings is what a replica's folder shows before Raft starts on it.
type Holdings struct {
	// Formed: it took part in a group that was at work: an entry beyond the founding one, a snapshot, or
	// a term that only a running group can have reached.
	Formed    bool
	LastIndex uint64 // of its log; 0 or 1 when not formed
	Start     Start  // its number and its newest entry
}

// Inspect says what the folder holds, without starting Raft and without changing anything. It returns
// [ErrLogLost], [ErrLocked], [ErrLaterFormat], or whatever makes the folder unreadable.
func Inspect(folder string) (Holdings, error) { return InspectUpTo(folder, fsm.NewestLevel) }

// InspectUpTo is Inspect for software whose newest level is another.
func InspectUpTo(folder string, newest uint64) (h Holdings, err error) {
	err = protect(func() error { return h.inspect(folder, newest) })
	if err != nil {
		return Holdings{}, fmt.Errorf("inspect %s: %w", folder, err)
	}
	return h, nil
}

// inspect fills in what there is. A snapshot beside a log that doesn't know its term is what is left of a
// lost log, votes and all: it gives ErrLogLost. (An empty log is none: an installed snapshot empties it.)
func (h *Holdings) inspect(folder string, newest uint64) (err error) {
	if err := laterInSnapshots(folder, newest); err != nil {
		return err
	}
	snapshot, any, err := lastInSnapshots(folder)
	if err != nil {
		return err
	}
	path := filepath.Join(folder, logFile)
	seen, err := look(path, newest)
	switch {
	case err != nil:
		return err
	case !seen.begun && any:
		return ErrLogLost
	case !seen.begun:
		return nil
	}
	bolt, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: readOnly()})
	if err != nil {
		return lockError(err)
	}
	defer func() { err = errors.Join(err, bolt.Close()) }()

	log, stable := logStore{disk: bolt}, stableStore{disk: bolt}
	if h.LastIndex, err = bolt.LastIndex(); err != nil {
		return err
	}
	if err := laterInLog(&log, seen.odd, newest); err != nil {
		return err
	}
	term, err := orZero(stable.getUint64(currentTermKey))
	if err != nil {
		return err
	}
	if term < snapshot.Term {
		return ErrLogLost
	}
	number, err := orZero(stable.getUint64(startKey))
	if err != nil {
		return err
	}
	highest, err := stable.highest()
	if err != nil {
		return err
	}
	var last raft.Log
	if h.LastIndex > 0 {
		if err := log.get(h.LastIndex, &last); err != nil {
			return err
		}
	}
	h.Start = snapshot.Later(highest).Later(Start{number, last.Term, last.Index})
	switch h.LastIndex {
	case 0:
		// The founding entry comes right after term 1 and before Raft first starts; a later term
		// without an entry is of a replica that ran.
		h.Formed = any || term > foundingTerm
	case 1:
		h.Formed = any || last.Type != raft.LogConfiguration
	default:
		h.Formed = true
	}
	return nil
}

// orZero takes a number that was never written for 0.
func orZero(v uint64, err error) (uint64, error) {
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return 0, nil
	}
	return v, err
}

// looked is what a look through a log's file shows.
type looked struct {
	begun bool     // it holds the tables of a log: a process may have died while creating it
	odd   []uint64 // the indexes of entries that may be of a later version
}

func look(path string, newest uint64) (l looked, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return l, nil
	}
	if err != nil {
		return l, err
	}
	// First, and by itself: bbolt would follow pages that lead back to themselves for as long as there is memory.
	if err := verifyPages(path); err != nil {
		return l, lockError(err)
	}
	db, err := bbolt.Open(path, 0o600, readOnly())
	if err != nil {
		return l, lockError(err)
	}
	tables := 0
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			tables++
			return b.ForEach(func(key, value []byte) error {
				if string(name) == logsBucket && len(key) == 8 && rawEntry(value).odd(newest) {
					l.odd = append(l.odd, binary.BigEndian.Uint64(key))
				}
				return nil
			})
		})
	})
	l.begun = tables == 2
	return l, errors.Join(err, db.Close())
}

func readOnly() *bbolt.Options { return &bbolt.Options{ReadOnly: true, Timeout: lockTimeout} }

func lockError(err error) error {
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return ErrLocked
	}
	return err
}

// lastInSnapshots returns the last entry that any finished snapshot holds, readable or not, and whether
// there is a snapshot. The library names a snapshot's folder TERM-INDEX-TIME.
func lastInSnapshots(folder string) (last Start, any bool, err error) {
	entries, err := os.ReadDir(filepath.Join(folder, snapshotsName))
	if errors.Is(err, fs.ErrNotExist) {
		return last, false, nil
	}
	for _, e := range entries {
		if !e.IsDir() || strings.HasSuffix(e.Name(), ".tmp") {
			continue
		}
		any = true
		term, rest, _ := strings.Cut(e.Name(), "-")
		index, _, _ := strings.Cut(rest, "-")
		last = last.Later(Start{Term: number(term), Index: number(index)})
	}
	return last, any, err
}

// number reads a decimal number, 0 if it is none.
func number(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
