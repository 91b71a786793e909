package partition

import (
	"io"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// followers knows what a leader's followers still need of its log, from what it asks them and they answer. A
// follower that has no part of the log any more is sent a snapshot, and by the time it is through with that the
// leader may have compacted what comes behind: it would be sent another one, and so on, as long as taking one in
// takes longer than filling half a log.
type followers struct {
	now    func() int64
	silent int64 // how long without an answer is too long to be waited for

	mu    sync.Mutex
	term  uint64 // that what is known is of; each leader begins anew
	by    map[raft.ServerID]follower
	reads map[uint64]int // snapshots that are being read, to be sent, by the entry behind them
}

// follower is what is known of one.
type follower struct {
	heard   int64  // monotonic; when it answered last
	needs   uint64 // the first entry that it may lack; 0: not known
	matched uint64 // the last entry that it has for certain
	newest  uint64 // the last entry of its log
}

func newFollowers(now func() int64, silent time.Duration) *followers {
	return &followers{now: now, silent: int64(silent), by: map[raft.ServerID]follower{}, reads: map[uint64]int{}}
}

// note changes what is known of a follower in a term, unless that is over.
func (f *followers) note(id raft.ServerID, term uint64, change func(*follower)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if term < f.term {
		return
	}
	if term > f.term {
		f.term = term
		clear(f.by)
	}
	one := f.by[id]
	change(&one)
	f.by[id] = one
}

// appended notes the answer to entries, or to a heartbeat, which names none and proves nothing of the log.
func (f *followers) appended(id raft.ServerID, asked *raft.AppendEntriesRequest, got *raft.AppendEntriesResponse) {
	f.note(id, asked.Term, func(one *follower) {
		one.heard, one.newest = f.now(), got.LastLog
		last := asked.PrevLogEntry + uint64(len(asked.Entries))
		switch {
		case got.Success && last > 0:
			one.matched = max(one.matched, last)
			one.needs = one.matched + 1
		case !got.Success && asked.PrevLogEntry > 0: // its log ends before, or is another's there
			one.needs = max(1, min(asked.PrevLogEntry, got.LastLog+1))
		}
	})
}

// keepFrom is the first entry of a log, which begins at first, that is to be kept for a follower that is there;
// none: the largest number. It is the one before the first that the follower needs, as what it is sent names its
// predecessor. Who needs what is gone already is about to be sent a snapshot, the newer the better.
func (f *followers) keepFrom(first uint64) uint64 {
	now, from := f.now(), uint64(math.MaxUint64)
	keep := func(needs uint64) {
		if before := max(needs-1, 1); before >= first {
			from = min(from, before)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.by {
		if one.needs > 0 && now-one.heard <= f.silent {
			keep(one.needs)
		}
	}
	for needs := range f.reads {
		keep(needs)
	}
	return from
}

// have reports whether a follower that is there has a log as far as an entry.
func (f *followers) have(index uint64) bool {
	now := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.by {
		if one.newest >= index && now-one.heard <= f.silent {
			return true
		}
	}
	return false
}

// reading notes that the snapshot that ends before an entry is being read, until done is called.
func (f *followers) reading(behind uint64) (done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads[behind]++
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.reads[behind]--; f.reads[behind] == 0 {
			delete(f.reads, behind)
		}
	})
}

// followed is a replica's transport that tells followers what crosses it.
type followed struct {
	Transport
	followers *followers
}

// AppendEntries implements raft.Transport.
func (t followed) AppendEntries(id raft.ServerID, to raft.ServerAddress, asked *raft.AppendEntriesRequest, got *raft.AppendEntriesResponse) error {
	if err := t.Transport.AppendEntries(id, to, asked, got); err != nil {
		return err
	}
	t.followers.appended(id, asked, got)
	return nil
}

// InstallSnapshot implements raft.Transport.
func (t followed) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, asked *raft.InstallSnapshotRequest, got *raft.InstallSnapshotResponse, data io.Reader) error {
	if err := t.Transport.InstallSnapshot(id, to, asked, got, data); err != nil {
		return err
	}
	t.followers.note(id, asked.Term, func(one *follower) {
		one.heard = t.followers.now()
		if got.Success {
			one.matched, one.needs = asked.LastLogIndex, asked.LastLogIndex+1
		}
	})
	return nil
}

// readSnapshots are a replica's snapshots that tell followers which of them are being read. To open one already
// takes long: all of it is verified.
type readSnapshots struct {
	raft.SnapshotStore
	followers *followers
}

// Open implements raft.SnapshotStore.
func (s readSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	all, err := s.List()
	if err != nil {
		return nil, nil, err
	}
	done := func() {}
	for _, meta := range all {
		if meta.ID == id {
			done = s.followers.reading(meta.Index + 1)
		}
	}
	meta, r, err := s.SnapshotStore.Open(id)
	if err != nil {
		done()
		return nil, nil, err
	}
	return meta, readSnapshot{r, done}, nil
}

type readSnapshot struct {
	io.ReadCloser
	done func()
}

// Close implements io.Closer.
func (r readSnapshot) Close() error {
	defer r.done()
	return r.ReadCloser.Close()
}
