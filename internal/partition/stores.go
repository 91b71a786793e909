package partition

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/clock"
)

// cachedEntries is how many of the newest entries stay in memory, for followers and for apply. More
// than the entries in flight would only cost memory: an entry can be a megabyte.
const cachedEntries = 64

// StoreOptions say what the stores must know of entries without knowing the state machine. All
// functions are required but Check and Appended; they may be called from several goroutines.
type StoreOptions struct {
	// Elapsed reads the process's accumulator, in nanoseconds.
	Elapsed func() int64
	// TimeOf returns the decision time that an entry of the state machine carries where it is logged
	// in term; false if it carries none, or one that the state machine won't count.
	TimeOf func(entry []byte, term uint64) (int64, bool)
	// SnapshotTime returns the decision time of a snapshot's state.
	SnapshotTime func(snapshot io.Reader) (int64, error)
	// Check verifies an entry of the state machine that was read from disk.
	Check func(entry []byte) error
	// Fatal hears, once, what ended the stores. It should end the process, and must not wait for
	// Raft: it runs on the goroutine whose call failed.
	Fatal func(error)
	// StuckAfter is the elapsed time after which a call of the store that hasn't returned is a stuck
	// disk. Default 20 s: less, and a disk that is merely busy costs a replica; more, and a leader
	// with a dead disk leads on.
	StuckAfter time.Duration
	// Appended, if not nil, hears how long each append to the log took until it was on disk.
	Appended func(took time.Duration)
	// Logger is handed to the snapshot store. Default: none.
	Logger hclog.Logger

	wrap func(disk) disk // for tests: faults between us and the disk
}

func (o *StoreOptions) setDefaults() {
	setDefault(&o.StuckAfter, 20*time.Second)
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
}

// Disk is what a replica's log and votes stand on.
type Disk = disk

// Stores are what Raft keeps of one replica on disk. The first error of any of them ends all of them.
type Stores struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore

	disk    disk
	log     *logStore
	guard   *diskGuard
	weights *weighedDisk
}

// OpenStores opens the stores in the replica's folder, which must be there. It returns [ErrLocked]
// after two seconds if another process has them, and [ErrDamaged] where they can't be believed; from
// then on it is Fatal that hears of errors.
func OpenStores(folder string, o StoreOptions) (*Stores, error) {
	o.setDefaults()
	bolt, err := openLogFile(folder)
	if err != nil {
		return nil, fmt.Errorf("open stores in %s: %w", folder, lockError(err))
	}
	s, err := openFiles(folder, bolt, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open stores in %s: %w", folder, err), bolt.Close())
	}
	return s, nil
}

func openFiles(folder string, d Disk, o StoreOptions) (*Stores, error) {
	if o.wrap != nil {
		d = o.wrap(d)
	}
	if err := sweep(folder); err != nil {
		return nil, err
	}
	files, err := raft.NewFileSnapshotStoreWithLogger(folder, keepSnapshots, o.Logger)
	if err != nil {
		return nil, err
	}
	snapshots := filepath.Join(folder, snapshotsName)
	// The names of the log and of the snapshots' folder. And those in there: one that a process left that was killed before
	// it could sync them is about to be acted on, and must not go with the power once a log that it replaces is wiped.
	for _, f := range []string{folder, snapshots} {
		if err := SyncFolder(f); err != nil {
			return nil, err
		}
	}
	return OpenStoresOn(folder, d, snapshotFiles{files, snapshots}, o)
}

// OpenStoresOn opens the stores of a replica on a disk and on snapshots that are no files, for simulations of both.
// The name is what errors call the replica. What isn't opened isn't closed either.
func OpenStoresOn(name string, d Disk, files raft.SnapshotStore, o StoreOptions) (*Stores, error) {
	o.setDefaults()
	weights := &weighedDisk{disk: d}
	d = weights
	log := &logStore{
		disk: d, snapshots: files,
		elapsed: o.Elapsed, timeOf: o.TimeOf, snapTime: o.SnapshotTime, check: o.Check, appended: o.Appended,
	}
	if err := protect(log.reconcile); err != nil {
		return nil, err
	}
	if err := protect(log.readBack); err != nil {
		return nil, err
	}
	if err := protect(weights.load); err != nil {
		return nil, err
	}
	if err := protect(weights.whole); err != nil {
		return nil, err
	}
	// The cache is the outermost layer: what it holds has just been stored or verified, and a read
	// that it answers costs neither a lookup nor a checksum.
	cache, err := raft.NewLogCache(cachedEntries, log)
	if err != nil {
		return nil, err
	}
	guard := newDiskGuard(name, o)
	log.guard = guard
	return &Stores{
		Log:       cache,
		Stable:    &stableStore{disk: d, guard: guard},
		Snapshots: &snapshotStore{files: files, guard: guard, log: log, cache: cache},
		disk:      d, log: log, guard: guard, weights: weights,
	}, nil
}

// Held returns the decision time of the newest entry that this replica holds, in log order, and when
// it was stored or read back. With nothing held, the time is 0.
func (s *Stores) Held() clock.Held { return s.log.Held() }

// LogBytes is what the entries of the log weigh.
func (s *Stores) LogBytes() uint64 { return s.weights.bytes() }

// Bootstrap writes the founding entry of a group unless it is there: every replica votes, and its address is
// its server id. Unlike the library's, it can be repeated after a process died in the middle of it.
func (s *Stores) Bootstrap(replicas []string) error {
	last, err := s.Log.LastIndex()
	if err != nil || last > 0 {
		return err
	}
	if err := s.Stable.SetUint64([]byte(currentTermKey), foundingTerm); err != nil {
		return err
	}
	return s.Log.StoreLog(&raft.Log{
		Index: 1, Term: foundingTerm, Type: raft.LogConfiguration,
		Data: raft.EncodeConfiguration(voters(replicas)),
	})
}

func voters(replicas []string) (c raft.Configuration) {
	for _, id := range replicas {
		c.Servers = append(c.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
	}
	return c
}

// Close closes the stores. Raft must have been shut down before. It can be called more than once.
func (s *Stores) Close() error {
	if !s.guard.close() {
		return nil
	}
	return s.disk.Close()
}
