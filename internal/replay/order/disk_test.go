package order_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/quorate/quorate/internal/replay/order"
)

// faults count what all files of a sorter are asked, and let one request fail.
type faults struct {
	create, write, read, shut int // so far
	failCreate                int // fail this one, from 1; 0 none
	failWrite                 int
	failRead                  int
	failShut                  int
	shortWrite                int // writes a part, and has no error to tell
	open                      int
	spoil                     func(nth int, p []byte, off int64) int // changes what was read; gives how much of it there is
}

var errDisk = syscall.ENOSPC

func (f *faults) file(dir string) (order.File, error) {
	if f.create++; f.create == f.failCreate {
		return nil, errDisk
	}
	real, err := order.CreateFile(dir)
	if err == nil {
		f.open++
	}
	return &faultyFile{real, f}, err
}

type faultyFile struct {
	order.File
	faults *faults
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	if f.faults.write++; f.faults.write == f.faults.failWrite {
		n, err := f.File.WriteAt(p[:len(p)/2], off) // a disk fills up in the middle of a write
		return n, errors.Join(err, errDisk)
	}
	if f.faults.write == f.faults.shortWrite {
		return f.File.WriteAt(p[:len(p)-1], off)
	}
	return f.File.WriteAt(p, off)
}

func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if f.faults.read++; f.faults.read == f.faults.failRead {
		return 0, errDisk
	}
	n, err := f.File.ReadAt(p, off)
	if f.faults.spoil != nil {
		n = f.faults.spoil(f.faults.read, p[:n], off)
	}
	return n, err
}

func (f *faultyFile) Close() error {
	f.faults.shut++
	f.faults.open--
	err := f.File.Close()
	if f.faults.shut == f.faults.failShut {
		return errDisk
	}
	return err
}

// sortOn sorts rows on a disk with faults. What came out must be the beginning of what is right.
func sortOn(t *testing.T, f *faults, rows, want []row) error {
	t.Helper()
	dir := t.TempDir()
	s := order.NewOn(order.Options{Dir: dir}, f.file)
	err := func() error {
		for _, r := range rows {
			if err := s.Add(r.time, []byte(r.payload)); err != nil {
				return err
			}
		}
		given := 0
		return s.Each(context.Background(), func(time int64, payload []byte) error {
			if r := want[given]; r.time != time || r.payload != string(payload) {
				t.Fatalf("row %d is wrong", given)
			}
			given++
			return nil
		})
	}()
	if err != nil {
		if again := s.Add(0, nil); !errors.Is(again, err) {
			t.Fatalf("after %v: %v", err, again)
		}
		if f.open != 0 {
			t.Fatalf("%d files open after %v", f.open, err)
		}
	}
	if closing := s.Close(); closing != nil && err == nil {
		err = closing
	}
	if f.open != 0 {
		t.Fatalf("%d files open after Close", f.open)
	}
	empty(t, dir)
	return err
}

// passes gives rows that take several runs, and a pass of merging: each run has a row so large that few
// buffers for such rows fit in the memory.
func passes(r *rand.Rand) []row {
	rows := random(r, 20_000, 5, 100)
	for i := 0; i < len(rows); i += 1_000 {
		rows[i].payload = strings.Repeat("x", 300_000)
	}
	return rows
}

func TestEveryFailureOfTheDiskIsReturned(t *testing.T) {
	rows := passes(seeded(t))
	want := sorted(rows)
	var clean faults
	if err := sortOn(t, &clean, rows, want); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d files, %d writes, %d reads", clean.create, clean.write, clean.read)
	if clean.create < 2 {
		t.Fatal("no pass of merging")
	}
	some := func(total int) (list []int) { // the first, the last, and some between
		for i := 1; i < total; i += 1 + total/6 {
			list = append(list, i)
		}
		return append(list, total)
	}
	var all []faults
	for _, n := range some(clean.create) {
		all = append(all, faults{failCreate: n})
	}
	for _, n := range some(clean.write) {
		all = append(all, faults{failWrite: n})
	}
	for _, n := range some(clean.read) {
		all = append(all, faults{failRead: n})
	}
	for _, n := range some(clean.shut) {
		all = append(all, faults{failShut: n})
	}
	for _, f := range all {
		asked := f
		err := sortOn(t, &f, rows, want)
		if !errors.Is(err, errDisk) || !strings.Contains(err.Error(), filepath.Dir(t.TempDir())) {
			t.Errorf("%+v: %v", asked, err)
		}
	}
}

func TestAShortWriteIsAnError(t *testing.T) {
	rows := passes(seeded(t))
	if err := sortOn(t, &faults{shortWrite: 2}, rows, sorted(rows)); !errors.Is(err, io.ErrShortWrite) {
		t.Error(err)
	}
}

func TestWhatTheDiskForgotIsDamage(t *testing.T) {
	rows := random(seeded(t), 50_000, 1000, 100)
	want := sorted(rows)
	frame := func(p []byte) bool { return len(p) > 8 } // not the head alone, which is read first
	for name, spoil := range map[string]func(nth int, p []byte, off int64) int{
		"a bit": func(nth int, p []byte, _ int64) int {
			if nth == 20 {
				p[len(p)/2] ^= 4
			}
			return len(p)
		},
		"a bit of every frame's end": func(_ int, p []byte, _ int64) int {
			if frame(p) {
				p[len(p)-1] ^= 1
			}
			return len(p)
		},
		"zeros": func(nth int, p []byte, _ int64) int {
			if nth >= 20 {
				clear(p)
			}
			return len(p)
		},
		"a short file": func(nth int, p []byte, _ int64) int {
			if nth == 20 {
				return len(p) - 1
			}
			return len(p)
		},
	} {
		if err := sortOn(t, &faults{spoil: spoil}, rows, want); !errors.Is(err, order.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A disk that answers with the sound bytes of another place.
func TestAFrameFromAnotherPlaceIsDamage(t *testing.T) {
	var rows []row
	for range 3_000 { // all frames are alike
		rows = append(rows, row{7, strings.Repeat("x", 1000)})
	}
	first := map[int][]byte{}
	spoil := func(_ int, p []byte, off int64) int {
		if kept := first[len(p)]; kept != nil && off > 0 {
			copy(p, kept)
		} else {
			first[len(p)] = bytes.Clone(p)
		}
		return len(p)
	}
	if err := sortOn(t, &faults{spoil: spoil}, rows, rows); !errors.Is(err, order.ErrDamaged) {
		t.Error(err)
	}
}

func TestNoFolderIsAnErrorThatNamesIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing")
	s := order.New(order.Options{Dir: dir})
	defer s.Close()
	payload := make([]byte, 100_000)
	for range 100 {
		if err := s.Add(0, payload); err != nil {
			if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), dir) {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("spilled into a folder that isn't there")
}

func TestTheFileIsForItsOwnerOnly(t *testing.T) {
	f, err := order.CreateFile(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	open, ok := f.(*os.File)
	if !ok {
		t.Skipf("on %s an open file keeps its name", runtime.GOOS)
	}
	info, err := open.Stat()
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestAFileThatKeepsItsNameGoesWithClose(t *testing.T) {
	dir := t.TempDir()
	create := func(dir string) (order.File, error) {
		f, err := os.CreateTemp(dir, "")
		return order.KeepingName(f), err
	}
	s := order.NewOn(order.Options{Dir: dir}, create)
	rows := passes(seeded(t))
	addAll(t, s, rows)
	same(t, collect(t, s), sorted(rows))
	closed(t, s, dir)
}

type readOnly struct{ *bytes.Reader }

func (readOnly) WriteAt([]byte, int64) (int, error) { return 0, errors.ErrUnsupported }
func (readOnly) Close() error                       { return nil }

// Any bytes: they are damage, or rows in order that make these very bytes again.
func FuzzRun(f *testing.F) {
	two := order.AppendRow(order.AppendRow(nil, -5, []byte("a")), 5, nil)
	f.Add(order.Frame(two), false)
	f.Add(two, true)
	f.Add(order.AppendRow(two, 4, nil), true)
	f.Add(two[:len(two)-1], true)
	f.Add(two[:13-1], true)
	f.Add([]byte{}, true)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal { // or no bytes would get past the checksum
			data = order.Frame(data)
		}
		const buffer = 1 << 12
		var rows []byte
		last := int64(-10)
		err := order.ReadRun(readOnly{bytes.NewReader(data)}, int64(len(data)), last, buffer, func(time int64, payload []byte) error {
			if time < last {
				t.Fatalf("%d after %d", time, last)
			}
			last = time
			rows = order.AppendRow(rows, time, payload)
			return nil
		})
		if len(rows) > len(data) {
			t.Fatalf("%d bytes of rows in %d", len(rows), len(data))
		}
		if err != nil {
			if !errors.Is(err, order.ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		if seal && !bytes.Equal(order.Frame(rows), data) {
			t.Fatalf("%x became %x", data, rows)
		}
	})
}
