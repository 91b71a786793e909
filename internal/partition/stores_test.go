package partition_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/internal/partition"
)

// bench is one replica's folder with its stores, and what they told.
type bench struct {
	t      *testing.T
	folder string
	now    atomic.Int64 // the accumulator
	wrap   func(partition.Disk) partition.Disk

	mu    sync.Mutex
	fatal []error

	*partition.Stores
}

// newBench opens stores in a new folder.
func newBench(t *testing.T, wrap func(partition.Disk) partition.Disk) *bench {
	t.Helper()
	b := &bench{t: t, folder: t.TempDir(), wrap: wrap}
	b.open()
	t.Cleanup(func() { b.Close() })
	return b
}

// tryOpen opens the stores as a process start does.
func (b *bench) tryOpen() error {
	o := partition.StoreOptions{
		Elapsed: b.now.Load, TimeOf: timeOf, Check: check, SnapshotTime: snapshotTime,
		Fatal: func(err error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.fatal = append(b.fatal, err)
		},
	}
	o.Wrap(func(d partition.Disk) partition.Disk {
		if b.wrap != nil {
			return b.wrap(d)
		}
		return d
	})
	stores, err := partition.OpenStores(b.folder, o)
	if err == nil {
		b.Stores = stores
	}
	return err
}

func (b *bench) open() {
	b.t.Helper()
	if err := b.tryOpen(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) reopen() {
	b.t.Helper()
	b.must(b.Close())
	b.open()
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// fatals returns what Fatal heard.
func (b *bench) fatals() []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fatal
}

// An entry in these tests is a time, the term that it was stamped in, and a word by which damage shows.
func entry(index, term uint64, at int64) *raft.Log {
	data := binary.BigEndian.AppendUint64(nil, uint64(at))
	data = binary.BigEndian.AppendUint64(data, term)
	return &raft.Log{Index: index, Term: term, Data: append(data, "sound"...)}
}

// late is an entry of an earlier term that got into the log of this one.
func late(index, stamped, term uint64, at int64) *raft.Log {
	l := entry(index, stamped, at)
	l.Term = term
	return l
}

func entries(from, to, term uint64) (logs []*raft.Log) {
	for i := from; i <= to; i++ {
		logs = append(logs, entry(i, term, int64(i)))
	}
	return logs
}

func timeOf(e []byte, term uint64) (int64, bool) {
	if len(e) != 21 || binary.BigEndian.Uint64(e[8:]) != term {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(e)), true
}

func check(e []byte) error {
	if len(e) != 21 || string(e[16:]) != "sound" {
		return errors.New("not sound")
	}
	return nil
}

func snapshotTime(r io.Reader) (int64, error) {
	var b [8]byte
	_, err := io.ReadFull(r, b[:])
	return int64(binary.BigEndian.Uint64(b[:])), err
}

func TestWhatIsStoredComesBackAlsoAfterAStart(t *testing.T) {
	b := newBench(t, nil)
	want := []*raft.Log{
		{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: []byte("members")},
		{Index: 2, Term: 1, Type: raft.LogNoop},
		entry(3, 1, 7),
		{Index: 4, Term: 2, Type: raft.LogBarrier, Data: []byte{}, Extensions: []byte("ext")},
	}
	b.must(b.Log.StoreLogs(want))
	b.must(b.Stable.Set([]byte("vote"), []byte("a-01")))
	b.must(b.Stable.SetUint64([]byte("term"), 1<<63+5))
	for _, when := range []string{"at once", "after a start"} {
		for _, w := range want {
			var got raft.Log
			b.must(b.Log.GetLog(w.Index, &got))
			if got.Index != w.Index || got.Term != w.Term || got.Type != w.Type ||
				!bytes.Equal(got.Data, w.Data) || !bytes.Equal(got.Extensions, w.Extensions) {
				t.Errorf("%s: got %+v, want %+v", when, got, *w)
			}
		}
		vote, err := b.Stable.Get([]byte("vote"))
		if term, terr := b.Stable.GetUint64([]byte("term")); err != nil || terr != nil || string(vote) != "a-01" || term != 1<<63+5 {
			t.Errorf("%s: vote %q, term %d, %v, %v", when, vote, term, err, terr)
		}
		b.reopen()
	}
	if b.fatals() != nil {
		t.Error(b.fatals())
	}
}

// Raft asks for what may not be there, and must be told so in the inner stores' own words.
func TestNotFoundIsAnAnswerAndNoFailure(t *testing.T) {
	b := newBench(t, nil)
	if err := b.Log.GetLog(1, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("entry: %v", err)
	}
	if _, err := b.Stable.Get([]byte("vote")); err == nil || err.Error() != "not found" {
		t.Errorf("vote: %v", err)
	}
	if _, err := b.Stable.GetUint64([]byte("term")); err == nil || err.Error() != "not found" {
		t.Errorf("term: %v", err)
	}
	if _, _, err := b.Snapshots.Open("1-1-1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("snapshot: %v", err)
	}
	if b.fatals() != nil {
		t.Error(b.fatals())
	}
}

func TestASecondProcessIsToldWhoHasTheFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the lock's two seconds are the bubble's
		b := newBench(t, nil)
		first := b.Stores
		if err := b.tryOpen(); !errors.Is(err, partition.ErrLocked) || !strings.Contains(err.Error(), b.folder) {
			t.Errorf("got %v", err)
		}
		b.must(first.Log.StoreLog(entry(1, 1, 1)))
		b.must(first.Close())
		b.open()
	})
}

func TestClosedStoresRefuseWithoutAlarm(t *testing.T) {
	b := newBench(t, nil)
	b.must(b.Close())
	b.must(b.Close())
	if err := b.Log.StoreLog(entry(1, 1, 1)); err == nil {
		t.Error("stored after closing")
	}
	if _, err := b.Stable.Get([]byte("x")); !errors.Is(err, partition.ErrStoresClosed) {
		t.Errorf("got %v", err)
	}
	if b.fatals() != nil {
		t.Error(b.fatals())
	}
}

// Every byte of every value in the file is flipped in turn. Whatever the flip makes of it, it is
// noticed, at the start or when the value is read, or it makes no difference: the timestamp that the
// library keeps with each entry decides nothing.
func TestEveryDamagedByteIsNoticed(t *testing.T) {
	b := newBench(t, nil)
	b.must(b.Log.StoreLog(&raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: []byte("members")}))
	b.must(b.Stable.SetUint64([]byte("term"), 5))
	b.reopen()
	want, noticed := b.everything()
	b.must(b.Close())
	if noticed {
		t.Fatal("damage before any was done")
	}
	flips, count := 0, 0
	for path, value := range b.values() {
		for i := range value {
			damaged := bytes.Clone(value)
			damaged[i] ^= 0x11
			b.put(path, damaged)
			flips++
			if b.tryOpen() != nil {
				count++
				continue
			}
			got, noticed := b.everything()
			b.must(b.Close())
			if noticed {
				count++
			} else if got != want {
				t.Errorf("bucket %s, key %q, byte %d: read %s, stored %s", path[0], path[1], i, got, want)
			}
		}
		b.put(path, value)
	}
	if flips < 80 || count < flips/2 {
		t.Errorf("%d of %d flipped bytes were noticed: hardly tried", count, flips)
	}
}

// everything returns all that can be read, and whether damage was noticed on the way.
func (b *bench) everything() (all string, noticed bool) {
	var l raft.Log
	lerr := b.Log.GetLog(1, &l)
	term, terr := b.Stable.GetUint64([]byte("term"))
	noticed, b.fatal = b.fatals() != nil, nil
	return fmt.Sprintf("%d %d %v %q %q %v; %d %v", l.Index, l.Term, l.Type, l.Data, l.Extensions, lerr, term, terr), noticed
}

// values returns every value of the file, by bucket and key.
func (b *bench) values() map[[2]string][]byte {
	values := map[[2]string][]byte{}
	b.bolt(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
			return bucket.ForEach(func(k, v []byte) error {
				values[[2]string{string(name), string(k)}] = bytes.Clone(v)
				return nil
			})
		})
	})
	return values
}

func (b *bench) put(path [2]string, value []byte) {
	b.bolt(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(path[0])).Put([]byte(path[1]), value) })
}

// bolt reaches behind the stores, which must be closed.
func (b *bench) bolt(f func(*bbolt.Tx) error) {
	b.t.Helper()
	db, err := bbolt.Open(filepath.Join(b.folder, "raft.db"), 0o600, &bbolt.Options{NoSync: true})
	b.must(err)
	b.must(db.Update(f))
	b.must(db.Close())
}

// A page that was lost and an older one read in its place: the entry is sound, and not the one asked for.
func TestASoundEntryInAnothersPlaceIsNoticed(t *testing.T) {
	b := newBench(t, nil)
	b.must(b.Log.StoreLogs([]*raft.Log{entry(1, 1, 7), entry(2, 1, 8), entry(3, 1, 9)}))
	b.must(b.Close())
	key := func(index uint64) [2]string {
		return [2]string{"logs", string(binary.BigEndian.AppendUint64(nil, index))}
	}
	b.put(key(2), b.values()[key(1)])
	b.open()
	if err := b.Log.GetLog(2, new(raft.Log)); !errors.Is(err, partition.ErrDamaged) || len(b.fatals()) != 1 {
		t.Errorf("got %v, fatal heard %v", err, b.fatals())
	}
}

// A disk damages bytes under everybody's feet.
func TestDamageInTheFileEndsTheStores(t *testing.T) {
	b := newBench(t, nil)
	b.must(b.Log.StoreLogs([]*raft.Log{entry(1, 1, 7), entry(2, 1, 8)}))
	b.reopen() // an empty cache: reads come from the file
	path := filepath.Join(b.folder, "raft.db")
	content, err := os.ReadFile(path)
	b.must(err)
	at := bytes.Index(content, entry(1, 1, 7).Data)
	if at < 0 {
		t.Fatal("the entry isn't in the file")
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	b.must(err)
	_, err = f.WriteAt([]byte{0xff}, int64(at))
	b.must(errors.Join(err, f.Close()))

	if err := b.Log.GetLog(1, new(raft.Log)); !errors.Is(err, partition.ErrDamaged) {
		t.Errorf("got %v", err)
	}
	if got := b.fatals(); len(got) != 1 || !strings.Contains(got[0].Error(), b.folder) || !strings.Contains(got[0].Error(), "entry 1") {
		t.Errorf("fatal heard %v", got)
	}
}

// The checksum is right and the entry is not one of ours: the state machine's own check decides.
func TestAnEntryThatTheStateMachineRefusesEndsTheStores(t *testing.T) {
	b := newBench(t, nil)
	b.must(b.Log.StoreLogs([]*raft.Log{{Index: 1, Term: 1, Data: []byte("nonsense")}, entry(2, 1, 3)}))
	b.reopen()
	if err := b.Log.GetLog(1, new(raft.Log)); !errors.Is(err, partition.ErrDamaged) || len(b.fatals()) != 1 {
		t.Errorf("got %v, fatal heard %v", err, b.fatals())
	}
}

func TestWhatIsHalfWrittenIsSweptAtTheStart(t *testing.T) {
	b := newBench(t, nil)
	b.snapshot(1, 1, 5)
	half := filepath.Join(b.folder, "snapshots", "2-9-1700000000000.tmp")
	write(t, filepath.Join(half, "state.bin"), "half")
	document := filepath.Join(b.folder, "peers.json.123.tmp")
	write(t, document, "{")
	b.reopen()
	for _, path := range []string{half, document} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("still there: %s, %v", path, err)
		}
	}
	if list, err := b.Snapshots.List(); err != nil || len(list) != 1 {
		t.Errorf("%d snapshots, %v", len(list), err)
	}
}

func TestADamagedSnapshotEndsTheStores(t *testing.T) {
	b := newBench(t, nil)
	id := b.snapshot(1, 1, 5)
	write(t, filepath.Join(b.folder, "snapshots", id, "state.bin"), "something else")
	if _, _, err := b.Snapshots.Open(id); err == nil || len(b.fatals()) != 1 {
		t.Errorf("got %v, fatal heard %v", err, b.fatals())
	}
}

func TestASnapshotThatCannotBeWrittenEndsTheStores(t *testing.T) {
	b := newBench(t, nil)
	sink, err := b.create(1, 1)
	b.must(err)
	b.must(os.RemoveAll(filepath.Join(b.folder, "snapshots")))
	_, err = sink.Write(binary.BigEndian.AppendUint64(nil, 5))
	b.must(err)
	if err := sink.Close(); err == nil || len(b.fatals()) != 1 {
		t.Errorf("got %v, fatal heard %v", err, b.fatals())
	}
}

func TestACancelledSnapshotIsGone(t *testing.T) {
	b := newBench(t, nil)
	b.must(b.Log.StoreLog(entry(1, 1, 7)))
	b.now.Store(50)
	sink, err := b.create(9, 1)
	b.must(err)
	b.must(sink.Cancel())
	b.must(sink.Close())
	if list, err := b.Snapshots.List(); err != nil || len(list) != 0 || b.fatals() != nil {
		t.Errorf("%d snapshots, %v, %v", len(list), err, b.fatals())
	}
	b.holds("untouched", 7, 0)
}

func (b *bench) create(index, term uint64) (raft.SnapshotSink, error) {
	_, transport := raft.NewInmemTransport("a")
	return b.Snapshots.Create(1, index, term, raft.Configuration{}, 0, transport)
}

// snapshot writes one whose state has decision time at, and returns its id.
func (b *bench) snapshot(index, term uint64, at int64) string {
	b.t.Helper()
	sink, err := b.create(index, term)
	b.must(err)
	_, err = sink.Write(binary.BigEndian.AppendUint64(nil, uint64(at)))
	b.must(err)
	b.must(sink.Close())
	return sink.ID()
}

func BenchmarkStoreLogs16KiB(b *testing.B) {
	folder := b.TempDir()
	stores, err := partition.OpenStores(folder, partition.StoreOptions{
		Elapsed: func() int64 { return 0 }, TimeOf: timeOf, SnapshotTime: snapshotTime,
		Fatal: func(err error) { b.Error(err) },
	})
	if err != nil {
		b.Fatal(err)
	}
	data, index := make([]byte, 16<<10), uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		index++
		if err := stores.Log.StoreLog(&raft.Log{Index: index, Term: 1, Data: data}); err != nil {
			b.Fatal(err)
		}
	}
	if err := stores.Close(); err != nil {
		b.Fatal(err)
	}
}

// A snapshot that a leader installs takes the place of the log, also of what is kept of it for quick reading: entries
// of a deposed leader that nobody else has would be handed out again.
func TestWhatASnapshotReplacesIsNotHandedOut(t *testing.T) {
	b := newBench(t, nil)
	b.must(b.Log.StoreLogs(entries(1, 20, 5)))
	b.snapshot(40, 6, 40)
	for i := uint64(1); i <= 20; i++ {
		var l raft.Log
		if err := b.Log.GetLog(i, &l); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("entry %d of term %d is handed out: %v", i, l.Term, err)
		}
	}
}

// Of the entry that a snapshot ends with the term is known, though the log begins behind it: whether what a leader
// sends joins on is looked up there. Nothing else of it is, and nothing of those before.
func TestTheEndOfASnapshotIsKnownToTheLog(t *testing.T) {
	b := newBench(t, nil)
	b.must(b.Log.StoreLogs(entries(1, 20, 5)))
	b.snapshot(40, 6, 40)
	look := func() {
		t.Helper()
		var l raft.Log
		if err := b.Log.GetLog(40, &l); err != nil || l.Index != 40 || l.Term != 6 || l.Type != raft.LogNoop || l.Data != nil {
			t.Errorf("%+v, %v", l, err)
		}
		for _, index := range []uint64{1, 20, 39} {
			if err := b.Log.GetLog(index, &l); !errors.Is(err, raft.ErrLogNotFound) {
				t.Errorf("entry %d is found: %v", index, err)
			}
		}
	}
	look()
	b.reopen()
	look()
	b.must(b.Log.StoreLogs(entries(41, 45, 7)))
	look()
	b.reopen()
	look()
}
