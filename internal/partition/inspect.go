package partition

import (
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
)

// ErrLocked says that another process has the replica's folder open.
var ErrLocked = errors.New("another process has the replica's folder open")

// lockTimeout is how long another process may still take to let go of a folder.
const lockTimeout = 2 * time.Second

// Inspect says what the folder dir/name holds, without starting Raft and without changing anything.
// It returns [ErrIdentityLost], [ErrLocked], or whatever makes the folder unreadable: an unreadable
// folder has no condition.
func Inspect(dir, name string) (State, error) {
	s := State{Name: name}
	identity, err := readIdentity(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return s, refuseOrphans(filepath.Join(dir, name))
	}
	if err != nil {
		return s, fmt.Errorf("inspect replica %s: %w", name, err)
	}
	s.Condition, s.ServerID = Blank, identity.ServerID()
	switch g, err := ReadGenesis(dir, name); {
	case err == nil:
		s.Condition, s.Genesis = Fresh, &g
	case !errors.Is(err, fs.ErrNotExist):
		return s, fmt.Errorf("inspect replica %s: %w", name, err)
	}
	var formed bool
	folder := filepath.Join(dir, name)
	if s.Peers, err = readPeers(folder); err != nil {
		return s, fmt.Errorf("inspect replica %s: %w", name, err)
	}
	err = protect(func() (err error) {
		formed, err = s.inspectLog(folder)
		return err
	})
	if err == nil && !formed && s.LastIndex == 0 && isFounded(folder) {
		err = ErrLogLost
	}
	switch {
	case errors.Is(err, ErrLogLost):
		s.Condition, s.Damage = Damaged, err
	case err != nil:
		return s, fmt.Errorf("inspect replica %s: %w", name, err)
	case formed:
		s.Condition = Formed
	}
	return s, nil
}

// inspectLog fills in the last index and the start, and tells whether the log proves a group that was at work. A
// snapshot beside a log that doesn't know its term is what is left of a lost log, votes and all: it
// gives ErrLogLost. (An empty log is none: an installed snapshot empties it.)
func (s *State) inspectLog(folder string) (formed bool, err error) {
	snapshot, formed, err := lastInSnapshots(folder)
	if err != nil {
		return false, err
	}
	path := filepath.Join(folder, logFile)
	switch begun, err := begun(path); {
	case err != nil:
		return false, err
	case !begun && formed:
		return false, ErrLogLost
	case !begun:
		return false, nil
	}
	bolt, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: readOnly()})
	if err != nil {
		return false, lockError(err)
	}
	defer func() { err = errors.Join(err, bolt.Close()) }()

	log, stable := logStore{disk: bolt}, stableStore{disk: bolt}
	if s.LastIndex, err = bolt.LastIndex(); err != nil {
		return false, err
	}
	term, err := stable.getUint64(currentTermKey)
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return false, err
	}
	if term < snapshot.Term {
		return false, ErrLogLost
	}
	number, err := stable.getUint64(startKey)
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return false, err
	}
	var last raft.Log
	if s.LastIndex > 0 {
		if err := log.get(s.LastIndex, &last); err != nil {
			return false, err
		}
	}
	s.Start = snapshot.later(Start{number, last.Term, last.Index})
	switch s.LastIndex {
	case 0:
		// The founding entry comes right after term 1 and before Raft first starts; a later term
		// without an entry is of a replica that ran.
		return formed || term > foundingTerm, nil
	case 1:
		return formed || last.Type != raft.LogConfiguration || s.Genesis == nil, nil
	default:
		return true, nil
	}
}

// begun tells whether the file holds the tables of a log: a process may have died while creating it.
func begun(path string) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	db, err := bbolt.Open(path, 0o600, readOnly())
	if err != nil {
		return false, lockError(err)
	}
	tables := 0
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
			tables++
			// Every page is looked at here, under protect: a page that makes no sense is this
			// replica's damage, while opened for writing it would end the process.
			return b.ForEach(func(_, _ []byte) error { return nil })
		})
	})
	return tables == 2, errors.Join(err, db.Close())
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
		last = last.later(Start{Term: number(term), Index: number(index)})
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
