package fsm_test

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/fsm"
)

// driven is a replicated machine and what it told its owner.
type driven struct {
	*fsm.Replicated
	applied []fsm.Applied
	fatal   []error
}

func drive(r *replica) *driven {
	d := &driven{}
	d.Replicated = fsm.Replicate(func(a fsm.Applied) { d.applied = append(d.applied, a) }, func(err error) { d.fatal = append(d.fatal, err) })
	for _, e := range r.log {
		d.feed(e)
	}
	return d
}

func (d *driven) feed(e entry) {
	d.Apply(&raft.Log{Index: e.index, Term: e.term, Data: e.data})
}

func (d *driven) hash() (h uint64) {
	d.Read(func(m *fsm.Machine) { h = m.StateHash() })
	return h
}

// sink is where raft would keep a snapshot.
type sink struct {
	bytes.Buffer
	err              error
	closed, canceled bool
}

func (s *sink) Write(b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	return s.Buffer.Write(b)
}
func (s *sink) ID() string    { return "test" }
func (s *sink) Close() error  { s.closed = true; return nil }
func (s *sink) Cancel() error { s.canceled = true; return nil }

func TestReplicatedAppliesAndTells(t *testing.T) {
	r := lived(t)
	d := drive(r)
	if len(d.applied) != len(r.log) || len(d.fatal) != 0 || d.hash() != r.m.StateHash() {
		t.Fatalf("%d of %d entries applied, errors %v", len(d.applied), len(r.log), d.fatal)
	}
	for i, a := range d.applied {
		if a.Index != r.log[i].index {
			t.Errorf("entry %d was told as %d", r.log[i].index, a.Index)
		}
	}
}

func TestReplicatedSnapshotAndRestore(t *testing.T) {
	d := drive(lived(t))
	s, err := d.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var kept sink
	if err := s.Persist(&kept); err != nil || !kept.closed || kept.canceled {
		t.Fatalf("persist: %v", err)
	}
	s.Release()
	heir := drive(&replica{})
	if err := heir.Restore(io.NopCloser(&kept)); err != nil || heir.hash() != d.hash() {
		t.Errorf("restore: %v", err)
	}
	// A snapshot that can't be restored leaves the state as it was.
	if err := heir.Restore(io.NopCloser(bytes.NewReader([]byte("nonsense")))); !errors.Is(err, fsm.ErrSnapshot) || heir.hash() != d.hash() {
		t.Errorf("restore of nonsense: %v", err)
	}
	full := sink{err: errors.New("disk full")}
	if err := s.Persist(&full); !errors.Is(err, full.err) || !full.canceled || full.closed {
		t.Errorf("persist on a full disk: %v", err)
	}
}

// TestAnOlderSnapshotIsRefused: going back to it would take allows back that were
// answered.
func TestAnOlderSnapshotIsRefused(t *testing.T) {
	r := lived(t)
	d := drive(r)
	s, err := d.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var kept sink
	if err := s.Persist(&kept); err != nil {
		t.Fatal(err)
	}
	r.tick()
	d.feed(r.log[len(r.log)-1])
	hash := d.hash()
	if err := d.Restore(io.NopCloser(&kept)); !errors.Is(err, fsm.ErrSnapshot) || d.hash() != hash {
		t.Errorf("restore: %v", err)
	}
}

// A machine that met damage says so once, applies nothing more and is never read again.
func TestReplicatedStopsAtDamage(t *testing.T) {
	r := lived(t)
	for name, bad := range map[string][]byte{
		"damage":     flipped(fsm.Tick(r.header()), 70),
		"divergence": fsm.CheckpointEntry(r.header(), fsm.Checkpoint{Index: r.m.LastCheckpoint().Index, Hash: r.m.LastCheckpoint().Hash + 1}),
	} {
		d := drive(r)
		applied := len(d.applied)
		for i := range uint64(3) {
			d.feed(entry{r.index + 1 + i, r.term, bad})
		}
		if len(d.fatal) != 1 || len(d.applied) != applied {
			t.Errorf("%s: told %v, and %d entries applied behind it", name, d.fatal, len(d.applied)-applied)
		}
		want := fsm.ErrDamaged
		if name == "divergence" {
			want = fsm.ErrDiverged
		}
		if !errors.Is(d.fatal[0], want) {
			t.Errorf("%s: %v", name, d.fatal[0])
		}
		if d.Read(func(*fsm.Machine) { t.Errorf("%s: it is read", name) }) {
			t.Errorf("%s: it can be read", name)
		}
		if _, err := d.Snapshot(); !errors.Is(err, want) {
			t.Errorf("%s: a snapshot is taken: %v", name, err)
		}
	}
}

// Who is told of damage may look at the machine: it isn't locked meanwhile.
func TestReplicatedTellsOutsideItsLock(t *testing.T) {
	r := lived(t)
	told := 0
	var d *fsm.Replicated
	d = fsm.Replicate(
		func(fsm.Applied) { d.Read(func(*fsm.Machine) {}) },
		func(error) { told++; d.Read(func(*fsm.Machine) {}) })
	for _, e := range r.log {
		d.Apply(&raft.Log{Index: e.index, Term: e.term, Data: e.data})
	}
	d.Apply(&raft.Log{Index: r.index + 1, Term: r.term, Data: nil})
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}

// Reads from any goroutine run beside applies; the race detector watches.
func TestReplicatedReadsBesideApplies(t *testing.T) {
	r := lived(t)
	d := drive(r)
	c := r.check(1, user(6))
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for range 300 {
				d.Read(func(m *fsm.Machine) {
					m.Recall(c)
					m.Refuse(c, m.Now())
					m.Inspect(nil, &c.Charges[0], m.Now())
					m.Memory()
				})
			}
		})
	}
	for i := range uint64(300) {
		d.feed(entry{r.index + 1 + i, r.term, fsm.BatchEntry(r.header(), version, []*fsm.Check{r.check(1, user(int(i)%9))})})
	}
	readers.Wait()
	if len(d.fatal) > 0 {
		t.Error(d.fatal)
	}
}
