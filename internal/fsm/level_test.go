package fsm_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/fsm"
)

// TestALevelIsRaisedByOneEntryAndOnlyUpward, and a snapshot keeps it.
func TestALevelIsRaisedByOneEntryAndOnlyUpward(t *testing.T) {
	r := start(t, settings(), perUser(rolling(3, minute)))
	r.want(fsm.VerdictAllow, r.check(1, desc("user=a")))
	if r.m.Level() != fsm.FirstLevel {
		t.Fatalf("level %d at genesis", r.m.Level())
	}
	for _, step := range []struct {
		to, now uint64
		refusal fsm.Refusal
	}{
		{0, 1, fsm.RefusedLevel}, {1, 1, fsm.RefusedLevel}, {2, 2, fsm.Accepted}, {2, 2, fsm.RefusedLevel},
		{1, 2, fsm.RefusedLevel}, {4, 4, fsm.Accepted}, {3, 4, fsm.RefusedLevel},
	} {
		a := r.apply(fsm.LevelEntry(r.header(), step.to))
		if a.Refusal != step.refusal || r.m.Level() != step.now {
			t.Errorf("to level %d: refusal %d and level %d, want %d and %d", step.to, a.Refusal, r.m.Level(), step.refusal, step.now)
		}
		if level := clone(t, r.m).Level(); level != step.now {
			t.Errorf("level %d is restored as %d", step.now, level)
		}
	}
	r.want(fsm.VerdictAllow, r.check(2, desc("user=a")))
	r.want(fsm.VerdictDeny, r.check(1, desc("user=a")))
}

// Two replicas that differ in nothing but the level have other hashes.
func TestTheStateHashTellsTheLevel(t *testing.T) {
	r := start(t, settings(), perUser(rolling(3, minute)))
	other := clone(t, r.m)
	for _, level := range []uint64{2, 3} {
		e := entry{r.index + 1, r.term, fsm.LevelEntry(r.header(), level+1)}
		apply(t, other, e)
		r.apply(fsm.LevelEntry(r.header(), level))
		if r.m.StateHash() == other.StateHash() {
			t.Errorf("levels %d and %d have the same hash", level, level+1)
		}
	}
}

// TestALevelThatTheSoftwareLacksStopsTheReplica: it neither skips the entry nor takes it for damage, and what comes
// behind it is never applied.
func TestALevelThatTheSoftwareLacksStopsTheReplica(t *testing.T) {
	r := start(t, settings(), perUser(rolling(3, minute)))
	d := drive(r)
	raise := fsm.LevelEntry(r.header(), fsm.NewestLevel+1)
	applied := len(d.applied)
	d.feed(entry{r.index + 1, r.term, raise})
	d.feed(entry{r.index + 2, r.term, fsm.Tick(r.header())})
	if len(d.fatal) != 1 || len(d.applied) != applied || d.Read(func(*fsm.Machine) {}) {
		t.Fatalf("told %v, and %d entries applied from there on", d.fatal, len(d.applied)-applied)
	}
	saysBothLevels(t, d.fatal[0])
	if errors.Is(d.fatal[0], fsm.ErrDamaged) {
		t.Error("it is taken for damage")
	}
	m := fsm.New()
	for _, e := range r.log {
		apply(t, m, e)
	}
	if _, err := m.Apply(r.index+1, r.term, raise); !errors.Is(err, fsm.ErrLevel) || m.Level() != fsm.FirstLevel {
		t.Errorf("level %d: %v", m.Level(), err)
	}
}

func saysBothLevels(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, fsm.ErrLevel) || !strings.Contains(err.Error(), "level 2, and this version has level 1: a later version of the software wrote it") {
		t.Errorf("it says %v", err)
	}
}

// TestASnapshotOfALevelThatTheSoftwareLacksStopsTheReplica, once; its state stays as it was.
func TestASnapshotOfALevelThatTheSoftwareLacksStopsTheReplica(t *testing.T) {
	r := lived(t)
	r.apply(fsm.LevelEntry(r.header(), 2))
	b := written(t, r.m.Snapshot())
	if level, err := fsm.SnapshotLevel(bytes.NewReader(b)); err != nil || level != 2 {
		t.Errorf("its level is %d (%v)", level, err)
	}
	if now, err := fsm.SnapshotTime(bytes.NewReader(b)); err != nil || now != r.m.Now() {
		t.Errorf("taken at %d (%v), want %d", now, err, r.m.Now())
	}
	d := drive(&replica{})
	for range 2 {
		saysBothLevels(t, d.Restore(io.NopCloser(bytes.NewReader(b))))
	}
	d.feed(r.log[0])
	if len(d.fatal) != 1 || len(d.applied) > 0 {
		t.Errorf("told %v, %d entries applied", d.fatal, len(d.applied))
	}
}

func TestEveryBitOfASnapshotAboveTheFirstLevelCounts(t *testing.T) {
	r := lived(t)
	r.apply(fsm.LevelEntry(r.header(), 2))
	b := written(t, r.m.Snapshot())
	if b[7] != fsm.SnapshotHead[7] {
		t.Fatalf("it begins with %q", b[:8])
	}
	for bit := range 8 * len(b) {
		if _, err := fsm.Restore(bytes.NewReader(flipped(b, bit)), fsm.UpTo(newest)); !errors.Is(err, fsm.ErrSnapshot) {
			t.Errorf("with bit %d flipped: %v", bit, err)
		}
	}
	for level := range byte(newest + 1) { // behind the checksums: the level is in the state hash
		s := stream(b)
		s[0] = level
		_, err := fsm.Restore(bytes.NewReader(slices.Concat([]byte(fsm.SnapshotHead), framed(s)[len(magic):])), fsm.UpTo(newest))
		if (err == nil) != (level == 2) || err != nil && !errors.Is(err, fsm.ErrSnapshot) {
			t.Errorf("as level %d: %v", level, err)
		}
	}
}

// TestTheFirstLevelIsWrittenAsBeforeThereWereLevels: the file holds a log, and the snapshot and the state hash that the
// last version without levels made of it. So going back to that version works as long as nothing was raised.
func TestTheFirstLevelIsWrittenAsBeforeThereWereLevels(t *testing.T) {
	text, err := os.ReadFile("testdata/first-level.txt")
	if err != nil {
		t.Fatal(err)
	}
	golden := strings.Fields(string(text))
	r := lived(t)
	var now []string
	for _, e := range r.log {
		now = append(now, hex.EncodeToString(e.data))
	}
	snapshot := written(t, r.m.Snapshot())
	now = append(now, hex.EncodeToString(snapshot), hashOf(r.m))
	if !slices.Equal(now, golden) {
		t.Errorf("it writes\n%s", strings.Join(now, "\n"))
	}
	restored, err := fsm.Restore(bytes.NewReader(snapshot))
	if err != nil || hashOf(restored) != golden[len(golden)-1] || restored.Level() != fsm.FirstLevel {
		t.Errorf("restored: %v", err)
	}
}

func hashOf(m *fsm.Machine) string { return fmt.Sprintf("%016x", m.StateHash()) }
