package fsm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"runtime"
	"testing"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/policy"
)

// lived is a small partition with something of everything in it: logs, a marker,
// buckets, one that is held, a deleted policy with usage, records of several moments,
// and slots that were freed.
func lived(tb testing.TB) *replica {
	p := perUser(rolling(3, minute), bucket(5, 1, second))
	p.Tiers = []policy.Tier{{When: []keyspace.Entry{{Name: "tier", Value: "none"}}, Amounts: []policy.Amount{{Limit: "rolling", Unlimited: true}, {Limit: "bucket", Unlimited: true}}}}
	q := policy.Policy{Name: "all", Global: true, Match: []keyspace.Entry{{Name: "class", Value: "x"}}, Limits: []policy.Limit{bucket(9, 1, second)}}
	gone := others(1)[0]
	gone.Overrides = []policy.Override{{When: []keyspace.Entry{{Name: "user", Value: "u"}}, Amounts: []policy.Amount{{Limit: "b", Refill: 2}}}}
	gone.Limits = append(gone.Limits, named("b", bucket(9, 1, hour)))
	r := start(tb, settings(), gone, p, q)
	r.want(fsm.VerdictAllow, r.checkIn("domain-0", 1, user(1)))
	for i := range 6 {
		r.want(fsm.VerdictAllow, r.check(1, user(i)))
	}
	r.at(50*second).want(fsm.VerdictAllow, r.late(2, user(6), desc("class=x")))
	for range 5 {
		r.at(r.now+second).want(fsm.VerdictAllow, r.check(1, desc("user=7", "tier=none")))
	}
	r.want(fsm.VerdictAllow, r.check(9, desc("user=7", "tier=none")))
	p.Limits = []policy.Limit{rolling(3, minute), bucket(60, 1, second)}
	r.change(p, q)
	r.at(61 * second).settle()
	r.want(fsm.VerdictAllow, r.check(1, user(8)))
	r.apply(fsm.CheckpointEntry(r.header(), r.m.LastCheckpoint()))
	return r
}

func TestEveryBitOfAnEntryCounts(t *testing.T) {
	r := lived(t)
	h := r.header()
	h.Seq = 0x1234
	for kind, e := range map[string][]byte{
		"first": fsm.First(h), "tick": fsm.Tick(h), "checkpoint": fsm.CheckpointEntry(h, fsm.Checkpoint{Index: 3, Hash: 4}),
		"settings": fsm.SettingsEntry(h, settings()), "policies": fsm.PoliciesEntry(h, version, []byte("{}")), "change": fsm.ChangeEntry(h, version, r.v, []byte("{}")),
		"batch": fsm.BatchEntry(h, r.v, []*fsm.Check{r.check(1, user(1)), r.check(2, user(2))}), "level": fsm.LevelEntry(h, 2),
	} {
		if _, err := fsm.ParseHeader(e); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if at, ok := fsm.TimeOf(e, h.Term); !ok || at != h.Time {
			t.Errorf("%s: of %d", kind, at)
		}
		if at, ok := fsm.TimeOf(e, h.Term+1); ok {
			t.Errorf("%s: of %d in another term, where apply refuses it", kind, at)
		}
		for bit := range 8 * len(e) {
			if _, err := fsm.ParseHeader(flipped(e, bit)); !errors.Is(err, fsm.ErrDamaged) {
				t.Errorf("%s with bit %d flipped: %v", kind, bit, err)
			}
		}
		for n := range e {
			if _, err := fsm.ParseHeader(e[:n]); !errors.Is(err, fsm.ErrDamaged) {
				t.Errorf("%s cut to %d bytes: %v", kind, n, err)
			}
		}
	}
}

func flipped(b []byte, bit int) []byte {
	b = bytes.Clone(b)
	b[bit/8] ^= 1 << (bit % 8)
	return b
}

// A header that is whole may still be none that a leader writes.
func TestHeadersThatNoLeaderWritesAreDamage(t *testing.T) {
	h := fsm.Header{Term: 1}
	for name, e := range map[string][]byte{
		"time below zero":     fsm.Tick(fsm.Header{Time: -1}),
		"no time":             fsm.Tick(fsm.Header{Time: math.MaxInt64}),
		"tick with a body":    append(fsm.Tick(h), 0),
		"first with a body":   append(fsm.First(h), 0),
		"kind 0":              set(fsm.Tick(h), 1, 0),
		"kind 8":              set(fsm.Tick(h), 1, 8),
		"version 2":           set(fsm.Tick(h), 0, 2),
		"something in byte 2": set(fsm.Tick(h), 2, 1),
		"something in byte 3": set(fsm.Tick(h), 3, 1),
	} {
		if _, err := fsm.ParseHeader(resealed(e)); !errors.Is(err, fsm.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func set(b []byte, at int, v byte) []byte {
	b[at] = v
	return b
}

// resealed gives an entry the checksum of what it holds.
func resealed(e []byte) []byte {
	const sum, body = 4, 8
	table := crc32.MakeTable(crc32.Castagnoli)
	binary.LittleEndian.PutUint32(e[sum:], crc32.Update(crc32.Checksum(e[:sum], table), table, e[body:]))
	return e
}

func TestBodiesThatNoLeaderWritesAreDamage(t *testing.T) {
	r := lived(t)
	h := r.header()
	zero := settings()
	zero.Partitions = 0
	batch := fsm.BatchEntry(h, r.v, []*fsm.Check{r.check(1, user(1))})
	many := make([]*fsm.Check, fsm.MaxChecks+1)
	for i := range many {
		many[i] = r.check(1, user(1))
	}
	for name, e := range map[string][]byte{
		"settings of no partition":      fsm.SettingsEntry(h, zero),
		"settings cut short":            fsm.SettingsEntry(h, settings())[:50],
		"policies without a version":    fsm.PoliciesEntry(h, version, nil)[:40],
		"checkpoint cut short":          fsm.CheckpointEntry(h, fsm.Checkpoint{})[:40],
		"level cut short":               fsm.LevelEntry(h, 2)[:39],
		"level with a byte more":        append(fsm.LevelEntry(h, 2), 0),
		"batch cut short":               batch[:len(batch)-1],
		"batch with a byte more":        append(bytes.Clone(batch), 0),
		"batch without a head":          batch[:40],
		"batch of more than the most":   fsm.BatchEntry(h, r.v, many),
		"batch with a part that is new": set(bytes.Clone(batch), 32+28, 1),
	} {
		m := clone(t, r.m)
		if _, err := m.Apply(r.index+1, r.term, resealed(e)); !errors.Is(err, fsm.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEveryBitOfASnapshotCounts(t *testing.T) {
	b := written(t, lived(t).m.Snapshot())
	if _, err := fsm.Restore(bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(b) {
		if _, err := fsm.Restore(bytes.NewReader(flipped(b, bit))); !errors.Is(err, fsm.ErrSnapshot) {
			t.Errorf("with bit %d flipped: %v", bit, err)
		}
	}
	for n := range b {
		if _, err := fsm.Restore(bytes.NewReader(b[:n])); !errors.Is(err, fsm.ErrSnapshot) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
}

func TestSnapshotTellsItsTime(t *testing.T) {
	r := lived(t)
	b := written(t, r.m.Snapshot())
	if now, err := fsm.SnapshotTime(bytes.NewReader(b)); err != nil || now != r.m.Now() {
		t.Errorf("taken at %d (%v), want %d", now, err, r.m.Now())
	}
	for _, cut := range []int{0, len(magic), 30, len(b) / 2} {
		if _, err := fsm.SnapshotTime(bytes.NewReader(b[:cut])); !errors.Is(err, fsm.ErrSnapshot) {
			t.Errorf("cut to %d bytes: %v", cut, err)
		}
	}
}

// Behind the checksums stands the state hash: what a snapshot says of usage can't be
// another without it.
func TestEveryByteOfASnapshotIsHashed(t *testing.T) {
	r := lived(t)
	s := stream(written(t, r.m.Snapshot()))
	for i := range s {
		m, err := fsm.Restore(bytes.NewReader(framed(set(bytes.Clone(s), i, s[i]+1))))
		if err == nil && m.StateHash() != r.m.StateHash() {
			t.Errorf("byte %d of %d: restored with another hash", i, len(s))
		}
		if err == nil {
			t.Errorf("byte %d of %d: it is restored", i, len(s))
		}
	}
}

// stream takes a snapshot out of its frames, framed puts it back.
func stream(b []byte) (s []byte) {
	for b = b[len(magic):]; len(b) > 0; {
		n := int(binary.LittleEndian.Uint32(b))
		s = append(s, b[8:8+n]...)
		b = b[8+n:]
	}
	return s
}

const magic = "QUORATE\x02"

func framed(s []byte) []byte {
	b := []byte(magic)
	for {
		n := min(len(s), 64<<10)
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(s[:n], crc32.MakeTable(crc32.Castagnoli)))
		b = append(b, s[:n]...)
		if n == 0 {
			return b
		}
		s = s[n:]
	}
}

// Snapshots whose checksums are right and whose content no machine has.
func TestSnapshotThatNoMachineWroteIsRefused(t *testing.T) {
	r := lived(t)
	s := stream(written(t, r.m.Snapshot()))
	const now = 16
	early := bytes.Clone(s)
	binary.LittleEndian.PutUint64(early[now:], uint64(second))
	never := bytes.Clone(s)
	binary.LittleEndian.PutUint64(never[now:], math.MaxInt64)
	for name, b := range map[string][]byte{
		"nothing":              nil,
		"other magic":          []byte("QUORATE\x01"),
		"no end":               framed(s)[:len(framed(s))-8],
		"a byte more":          framed(append(bytes.Clone(s), 0)),
		"events of the future": framed(early),
		"taken at no time":     framed(never),
		"a frame too large":    append([]byte(magic), 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0),
	} {
		if _, err := fsm.Restore(bytes.NewReader(b)); !errors.Is(err, fsm.ErrSnapshot) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A length that lies costs no more memory than there are bytes.
func TestLyingLengthsCostNoMemory(t *testing.T) {
	s := stream(written(t, lived(t).m.Snapshot()))
	for at := range s {
		lie := append(bytes.Clone(s[:at]), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := fsm.Restore(bytes.NewReader(framed(append(lie, s[at:]...))))
		runtime.ReadMemStats(&after)
		if spent := after.TotalAlloc - before.TotalAlloc; err == nil || spent > 4<<20 {
			t.Errorf("a huge number at %d of %d: %d bytes spent, %v", at, len(s), spent, err)
		}
	}
}

func TestRestoredWriteErrorIsReported(t *testing.T) {
	full := errors.New("disk full")
	for _, room := range []int{0, 5, 100} {
		if _, err := lived(t).m.Snapshot().WriteTo(&shortWriter{room, full}); !errors.Is(err, full) {
			t.Errorf("with room for %d bytes: %v", room, err)
		}
	}
}

type shortWriter struct {
	room int
	err  error
}

func (w *shortWriter) Write(b []byte) (int, error) {
	if len(b) > w.room {
		return 0, w.err
	}
	w.room -= len(b)
	return len(b), nil
}

// FuzzApply: no bytes that come as an entry make a machine panic; what isn't even an
// entry changes nothing.
func FuzzApply(f *testing.F) {
	r := lived(f)
	for _, e := range r.log {
		f.Add(e.data)
	}
	f.Add(fsm.LevelEntry(r.header(), 2))
	image := written(f, r.m.Snapshot())
	f.Fuzz(func(t *testing.T, e []byte) {
		m, err := fsm.Restore(bytes.NewReader(image), fsm.UpTo(newest))
		if err != nil {
			t.Fatal(err)
		}
		before := m.StateHash()
		_, parse := fsm.ParseHeader(e)
		_, err = m.Apply(r.index+1, r.term, e)
		if parse != nil && (!errors.Is(err, fsm.ErrDamaged) || m.StateHash() != before) {
			t.Errorf("%v, then %v", parse, err)
		}
		if len(e) < 8 {
			return
		}
		_, err = m.Apply(r.index+1, r.term, resealed(bytes.Clone(e)))
		if err == nil {
			clone(t, m)
		}
	})
}

// FuzzBatch: whatever the body of a whole batch holds, it is damage or it is decided,
// and then the state is one that can be counted anew.
func FuzzBatch(f *testing.F) {
	r := lived(f)
	const head, versionBytes = 32, 16
	for _, checks := range [][]*fsm.Check{
		{}, {r.check(1, user(1))}, {r.check(1, user(6), user(6), desc("class=x")), r.check(1<<62, desc("user=7", "tier=none"))},
	} {
		f.Add(fsm.BatchEntry(r.header(), r.v, checks)[head+versionBytes:], int64(1))
	}
	image := written(f, r.m.Snapshot())
	f.Fuzz(func(t *testing.T, body []byte, later int64) {
		m, err := fsm.Restore(bytes.NewReader(image))
		if err != nil {
			t.Fatal(err)
		}
		h := r.header()
		h.Time = max(0, h.Time+later)
		e := resealed(append(fsm.BatchEntry(h, r.v, nil)[:head+versionBytes], body...))
		a, err := m.Apply(r.index+1, r.term, e)
		if err != nil {
			if !errors.Is(err, fsm.ErrDamaged) {
				t.Error(err)
			}
			return
		}
		for _, answer := range a.Answers {
			if words[answer.Verdict] == "" {
				t.Errorf("verdict %d", answer.Verdict)
			}
		}
		clone(t, m)
	})
}

// FuzzGenesis: settings and policies of any bytes, in an empty machine.
func FuzzGenesis(f *testing.F) {
	r := lived(f)
	const head = 32
	for _, e := range r.log[1:3] {
		f.Add(e.data[head:], e.data[1] == byte(fsm.KindPolicies))
	}
	f.Fuzz(func(t *testing.T, body []byte, policies bool) {
		b := &replica{tb: t, m: empty()}
		b.lead()
		e := fsm.SettingsEntry(b.header(), settings())[:head]
		if policies {
			b.apply(fsm.SettingsEntry(b.header(), settings()))
			e = fsm.PoliciesEntry(b.header(), version, nil)[:head]
		}
		if _, err := b.m.Apply(b.index+1, b.term, resealed(append(e, body...))); err == nil {
			clone(t, b.m)
		} else if !policies && !errors.Is(err, fsm.ErrDamaged) {
			t.Error(err)
		}
	})
}

// FuzzRestore: no bytes make Restore panic, and what it accepts is a machine that
// works: it applies entries, and its snapshot is accepted again.
func FuzzRestore(f *testing.F) {
	r := lived(f)
	f.Add(stream(written(f, r.m.Snapshot())), true)
	f.Add(stream(written(f, fsm.New().Snapshot())), true)
	f.Add(written(f, r.m.Snapshot()), false)
	r.apply(fsm.LevelEntry(r.header(), 2))
	f.Add(written(f, r.m.Snapshot()), false)
	f.Fuzz(func(t *testing.T, b []byte, whole bool) {
		if whole {
			b = framed(b)
		}
		m, err := fsm.Restore(bytes.NewReader(b), fsm.UpTo(newest))
		if err != nil {
			if !errors.Is(err, fsm.ErrSnapshot) {
				t.Error(err)
			}
			return
		}
		if clone(t, m).StateHash() != m.StateHash() {
			t.Error("restored again it is another")
		}
	})
}
