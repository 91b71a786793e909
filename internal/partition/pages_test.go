package partition_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/internal/partition"
)

const pageSize = 4096

// logFile makes a log of many pages, of some kinds: branches, leaves, long ones.
func logFile(t testing.TB, folder string) []byte {
	t.Helper()
	stores, err := partition.OpenStores(folder, options(t))
	if err != nil {
		t.Fatal(err)
	}
	for from := uint64(1); from <= 600; from += 20 {
		var logs []*raft.Log
		for i := from; i < from+20; i++ {
			l := entry(i, 1, int64(i))
			if i%50 == 0 {
				l.Extensions = make([]byte, 9000)
			}
			logs = append(logs, l)
		}
		if err := stores.Log.StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(stores.Stable.SetUint64([]byte("term"), 1), stores.Close()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(folder, "raft.db"))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func options(t testing.TB) partition.StoreOptions {
	return partition.StoreOptions{
		Elapsed: func() int64 { return 0 }, TimeOf: timeOf, Check: check, SnapshotTime: snapshotTime,
		Fatal: func(err error) { t.Log(err) },
	}
}

// opened opens stores on a file with this content, reads all that is there, and returns the first error.
func opened(t testing.TB, content []byte) error {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "raft.db"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	stores, err := partition.OpenStores(folder, options(t))
	if err != nil {
		return err
	}
	defer func() { _ = stores.Close() }()
	first, err := stores.Log.FirstIndex()
	last, lerr := stores.Log.LastIndex()
	if err = errors.Join(err, lerr); err != nil {
		return err
	}
	for i := first; i <= last; i++ {
		if err := stores.Log.GetLog(i, new(raft.Log)); err != nil {
			return err
		}
	}
	return stores.Log.StoreLog(entry(last+1, 2, int64(last)))
}

// Pages that are lost, put in another's place or of another time, a byte of a page's head or elements: the process goes
// on, whatever the file then is. bbolt by itself panics over most of it, on a goroutine where nobody can help.
func TestDamagedPagesEndNoProcess(t *testing.T) {
	sound := logFile(t, t.TempDir())
	if err := opened(t, sound); err != nil {
		t.Fatal(err)
	}
	pages := len(sound) / pageSize
	seeds(t, 300, func(t *testing.T, rng *rand.Rand) {
		damaged := append([]byte(nil), sound...)
		page := damaged[pageSize*(2+rng.IntN(pages-2)):][:pageSize]
		what := rng.IntN(4)
		switch what {
		case 0:
			clear(page)
		case 1:
			copy(page, sound[pageSize*(2+rng.IntN(pages-2)):])
		case 2:
			copy(page[8:], sound[pageSize*(2+rng.IntN(pages-2)):][8:pageSize]) // and keeps its number
		case 3:
			page[rng.IntN(64)] ^= byte(1 << rng.IntN(8))
		}
		_ = opened(t, damaged)
	})
}

// A leaf of another time, sound in itself: what it lacks shows at the start.
func TestALogWithAHoleIsRefused(t *testing.T) {
	b := newBench(t, nil)
	b.must(b.Log.StoreLogs(entries(1, 9, 1)))
	b.must(b.Close())
	b.bolt(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("logs")).Delete(binary.BigEndian.AppendUint64(nil, 5))
	})
	if err := b.tryOpen(); !errors.Is(err, partition.ErrDamaged) || !strings.Contains(err.Error(), "no entry 5") {
		t.Errorf("got %v", err)
	}
}

// Each kind of damage is noticed at the start, by its name.
func TestDamagedPagesAreNamed(t *testing.T) {
	sound := logFile(t, t.TempDir())
	branch := -1
	for n := 2; n < len(sound)/pageSize; n++ {
		if p := sound[n*pageSize:]; int(binary.LittleEndian.Uint64(p)) == n && p[8] == 1 && binary.LittleEndian.Uint16(p[10:]) > 3 {
			branch = n // the last one that was written; freed ones may be stale
		}
	}
	if branch < 0 {
		t.Fatal("the log has no branch")
	}
	for what, damage := range map[string]func(page []byte){
		"is another one":  func(p []byte) { p[0]++ },
		"is of kind 16":   func(p []byte) { p[8] = 16 },
		"with 0 elements": func(p []byte) { p[10], p[11] = 0, 0 },
		"beyond its end":  func(p []byte) { binary.LittleEndian.PutUint32(p[16:], 1<<31) },
		"is named twice":  func(p []byte) { copy(p[16+16+8:16+16+16], p[16+8:16+16]) },
		"is named, of":    func(p []byte) { p[16+16+8+3] = 1 },
		"in the wrong place": func(p []byte) {
			copy(p[16:20], binary.LittleEndian.AppendUint32(nil, binary.LittleEndian.Uint32(p[32:])+16)) // the second's key
		},
	} {
		damaged := append([]byte(nil), sound...)
		damage(damaged[branch*pageSize:][:pageSize])
		if err := opened(t, damaged); !errors.Is(err, partition.ErrDamaged) || !strings.Contains(fmt.Sprint(err), what) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	if err := opened(t, sound[:len(sound)/2]); !errors.Is(err, partition.ErrDamaged) || !strings.Contains(err.Error(), "beyond the end") {
		t.Errorf("half a file: got %v", err)
	}
}

// damagedEntries are what a disk may have put in an entry's place that the library's decoder had better not see.
var damagedEntries = map[string][]byte{
	"an unknown field of four gigabytes": append([]byte("\x86\xa1x"), 0xc9, 0xff, 0xff, 0xff, 0xff, 0),
	"a time of four gigabytes":           append([]byte("\x86\xaaAppendedAt"), 0xdb, 0xff, 0xff, 0xff, 0xff),
	"a field of four gigabytes":          append([]byte("\x86\xa4Data"), 0xc6, 0xff, 0xff, 0xff, 0xff),
	"a million lists in one another":     append([]byte("\x86\xa1x"), bytes.Repeat([]byte{0x91}, 1<<20)...),
	"a list":                             {0x92, 1, 2},
	"fewer fields than it says":          append([]byte("\x86\xa5Index"), 1),
	"more than it says":                  append([]byte("\x81\xa5Index"), 1, 1),
	"nothing":                            {},
}

// What stands in an entry's place and is none is noticed before the library decodes it, which could take all memory or
// end the process: in a large log and in one so small that bbolt keeps it within another page.
func TestADamagedEntryCostsNoMemory(t *testing.T) {
	for _, entriesOf := range []uint64{3, 40} {
		for what, value := range damagedEntries {
			t.Run(fmt.Sprint(what, " in place of one of ", entriesOf), func(t *testing.T) {
				b := newBench(t, nil)
				b.must(b.Log.StoreLogs(entries(1, entriesOf, 1)))
				b.must(b.Close())
				b.bolt(func(tx *bbolt.Tx) error {
					return tx.Bucket([]byte("logs")).Put(binary.BigEndian.AppendUint64(nil, entriesOf), value)
				})
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, looked := partition.Inspect(b.folder)
				for _, err := range []error{looked, b.tryOpen()} {
					if !errors.Is(err, partition.ErrDamaged) || !strings.Contains(err.Error(), "what is no entry") {
						t.Errorf("got %v", err)
					}
				}
				runtime.ReadMemStats(&after)
				if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
					t.Errorf("took %d bytes", took)
				}
			})
		}
	}
}

// An entry that the library has written is always taken for one, whatever is in it.
func TestWhatTheLibraryWritesIsAnEntry(t *testing.T) {
	seeds(t, 50, func(t *testing.T, rng *rand.Rand) {
		folder := t.TempDir()
		stores, err := partition.OpenStores(folder, options(t))
		if err != nil {
			t.Fatal(err)
		}
		var logs []*raft.Log
		for index := uint64(1); index <= 20; index++ {
			logs = append(logs, &raft.Log{
				Index: index, Term: rng.Uint64() >> rng.IntN(64), Type: raft.LogType(1 + rng.IntN(5)),
				Data:       make([]byte, rng.IntN(1<<rng.IntN(18))),
				Extensions: make([]byte, rng.IntN(1<<rng.IntN(10))),
				AppendedAt: time.Unix(rng.Int64N(1<<40), rng.Int64N(1e9)),
			})
		}
		if err := errors.Join(stores.Log.StoreLogs(logs), stores.Close()); err != nil {
			t.Fatal(err)
		}
		again, err := partition.OpenStores(folder, options(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A branch that leads back to itself, as a stale page can: bbolt would go round in it, and remember each round. A look at a
// folder comes first of all, and must notice.
func TestPagesThatLeadBackToThemselvesAreNotFollowed(t *testing.T) {
	folder := t.TempDir()
	content := logFile(t, folder)
	circles := 0
	for n := 2; n < len(content)/pageSize; n++ {
		if page := content[n*pageSize:]; int(binary.LittleEndian.Uint64(page)) == n && page[8] == 1 {
			binary.LittleEndian.PutUint64(page[16+8:], uint64(n)) // its first element's page
			circles++
		}
	}
	if circles == 0 {
		t.Fatal("the log has no branch")
	}
	if err := os.WriteFile(filepath.Join(folder, "raft.db"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := partition.Inspect(folder); !errors.Is(err, partition.ErrDamaged) || !strings.Contains(fmt.Sprint(err), "is named twice") {
		t.Errorf("got %v", err)
	}
}

// Any bytes behind the meta pages.
func FuzzDamagedPages(f *testing.F) {
	sound := logFile(f, f.TempDir())
	f.Add(uint32(0), []byte{1})
	f.Add(uint32(16), []byte{255, 255, 255, 255, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, at uint32, change []byte) {
		damaged := append([]byte(nil), sound...)
		copy(damaged[2*pageSize+int(at)%(len(damaged)-2*pageSize):], change)
		_ = opened(t, damaged)
	})
}
