package order_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/quorate/quorate/internal/replay/order"
)

type row struct {
	time    int64
	payload string
}

// sorted is the oracle: all rows in one slice, sorted stably.
func sorted(rows []row) []row {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.time, b.time) })
	return rows
}

func addAll(t testing.TB, s *order.Sorter, rows []row) {
	t.Helper()
	buffer := []byte(nil)
	for _, r := range rows {
		buffer = append(buffer[:0], r.payload...)
		if err := s.Add(r.time, buffer); err != nil {
			t.Fatal(err)
		}
		for i := range buffer {
			buffer[i] = 0xff // the sorter has its own copy
		}
	}
}

func collect(t testing.TB, s *order.Sorter) (rows []row) {
	t.Helper()
	err := s.Each(context.Background(), func(time int64, payload []byte) error {
		rows = append(rows, row{time, string(payload)})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func same(t testing.TB, got, want []row) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d rows, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("row %d: %d %.40q, want %d %.40q", i, got[i].time, got[i].payload, want[i].time, want[i].payload)
		}
	}
}

// sortAll checks what comes out of a new sorter, and that nothing is left in its folder, at any time.
func sortAll(t testing.TB, memory int64, rows []row) *order.Sorter {
	t.Helper()
	dir := t.TempDir()
	s := order.New(order.Options{Memory: memory, Dir: dir})
	defer func() { closed(t, s, dir) }()
	addAll(t, s, rows)
	if s.Rows() != int64(len(rows)) {
		t.Fatalf("%d rows counted of %d", s.Rows(), len(rows))
	}
	if runtime.GOOS == "linux" {
		empty(t, dir) // a killed process leaves nothing
	}
	same(t, collect(t, s), sorted(rows))
	return s
}

func closed(t testing.TB, s *order.Sorter, dir string) {
	t.Helper()
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	empty(t, dir)
}

func empty(t testing.TB, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Fatalf("left in the folder: %v, %v", left, err)
	}
}

// random gives rows with times from a range, so that many are equal, each with its number in it.
func random(r *rand.Rand, n int, times int64, payload int) []row {
	rows := make([]row, n)
	for i := range rows {
		p := make([]byte, 4+r.IntN(payload+1))
		binary.LittleEndian.PutUint32(p, uint32(i))
		rows[i] = row{r.Int64N(2*times+1) - times, string(p)}
	}
	return rows
}

func seeded(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func TestRandomRowsComeOutInOrder(t *testing.T) {
	r := seeded(t)
	for _, n := range []int{0, 1, 2, 3, 100, 1023, 1024, 1025, 20_000, 50_000} {
		for _, times := range []int64{0, 3, 1000, 3600e9, math.MaxInt64 / 4} {
			t.Run(fmt.Sprintf("%d of %d", n, times), func(t *testing.T) {
				sortAll(t, 0, random(r, n, times, 100))
			})
		}
	}
	sortAll(t, 0, []row{{math.MaxInt64, "c"}, {math.MinInt64, "a"}, {0, "b"}, {math.MaxInt64, ""}, {math.MinInt64, ""}})
}

func TestEqualTimesKeepTheOrderOfAdd(t *testing.T) {
	s := sortAll(t, 0, random(seeded(t), 50_000, 0, 100))
	if runs, _ := s.Spilled(); runs < 2 || !s.InOrder() {
		t.Errorf("%d runs, in order %v", runs, s.InOrder())
	}
}

// Rows of all sizes: some share a block, some fill one, some need more than all the memory.
func TestRowsLargerThanTheMemory(t *testing.T) {
	r := seeded(t)
	unit := order.New(order.Options{}).Unit()
	var rows []row
	for i := range 60 {
		sizes := []int{0, 1, unit - 30, unit - 4, unit - 3, unit, unit + 1, 3 * unit, order.MinMemory - 3*unit - 4, order.MinMemory, 3 << 20}
		p := make([]byte, sizes[r.IntN(len(sizes))])
		if len(p) > 0 {
			p[0], p[len(p)-1] = byte(i), byte(i)
		}
		rows = append(rows, row{int64(r.IntN(20)), string(p)})
	}
	sortAll(t, 0, rows)
	sortAll(t, 0, rows[:1])
	sortAll(t, 64<<20, rows)
}

func TestARowBeyondTheLimitIsRefusedAndTheRestGoesOn(t *testing.T) {
	s := order.New(order.Options{Dir: t.TempDir()})
	defer s.Close()
	large := make([]byte, order.MaxPayload+1)
	if err := s.Add(1, large); !errors.Is(err, order.ErrTooLarge) || s.Rows() != 0 {
		t.Fatalf("%v, %d rows", err, s.Rows())
	}
	for _, time := range []int64{2, 1} {
		if err := s.Add(time, large[1:]); err != nil {
			t.Fatal(err)
		}
	}
	got := collect(t, s)
	if len(got) != 2 || got[0].time != 1 || len(got[1].payload) != order.MaxPayload {
		t.Fatalf("%d rows", len(got))
	}
}

func TestRowsInOrderAreWrittenOnceAndNotMerged(t *testing.T) {
	rows := sorted(random(seeded(t), 50_000, 1000, 100))
	s := sortAll(t, 0, rows)
	runs, bytes := s.Spilled()
	if !s.InOrder() || runs < 2 {
		t.Errorf("%d runs, in order %v", runs, s.InOrder())
	}
	if payload := total(rows); bytes < payload+12*int64(len(rows)) || bytes > payload+13*int64(len(rows)) {
		t.Errorf("%d bytes for %d rows of %d", bytes, len(rows), payload)
	}
	s = sortAll(t, 64<<20, rows)
	if runs, bytes := s.Spilled(); runs != 0 || bytes != 0 {
		t.Errorf("it fits, and %d runs of %d bytes were written", runs, bytes)
	}
}

func total(rows []row) (n int64) {
	for _, r := range rows {
		n += int64(len(r.payload))
	}
	return n
}

func TestReversedRows(t *testing.T) {
	rows := random(seeded(t), 50_000, 1<<40, 100)
	rows = sorted(rows)
	slices.Reverse(rows)
	s := sortAll(t, 0, rows)
	if s.InOrder() {
		t.Error("reversed rows were in order")
	}
	if _, bytes := s.Spilled(); bytes > total(rows)+13*int64(len(rows)) {
		t.Errorf("%d bytes: runs that don't overlap were merged in passes", bytes)
	}
}

// So many runs that their buffers don't fit in the memory together.
func TestManyRunsAreMergedInPasses(t *testing.T) {
	r := seeded(t)
	rows := random(r, 70_000, 5, 2000)
	s := sortAll(t, 0, rows)
	runs, bytes := s.Spilled()
	once := total(rows) + 12*int64(len(rows))
	if runs < 64 || bytes < 2*once || bytes > 2*once+2*once/50 {
		t.Errorf("%d runs, %d bytes for %d", runs, bytes, once)
	}
}

func TestFullComesBeforeTheFirstSpill(t *testing.T) {
	s := order.New(order.Options{Memory: 4 << 20, Dir: t.TempDir()})
	defer s.Close()
	if s.Full() {
		t.Fatal("full without a row")
	}
	payload := make([]byte, 100)
	for !s.Full() {
		if err := s.Add(0, payload); err != nil {
			t.Fatal(err)
		}
	}
	if runs, _ := s.Spilled(); runs != 0 || s.Rows() < (4<<20)*9/10/120 {
		t.Fatalf("full after %d rows, %d runs", s.Rows(), runs)
	}
	if err := s.Add(0, payload); err != nil {
		t.Fatal(err)
	}
	if runs, _ := s.Spilled(); runs != 1 || s.Full() {
		t.Fatalf("%d runs, full %v", runs, s.Full())
	}
}

func TestOnceAndNoMore(t *testing.T) {
	s := order.New(order.Options{Dir: t.TempDir()})
	addAll(t, s, []row{{1, "a"}})
	collect(t, s)
	nothing := func(int64, []byte) error { return nil }
	if err := s.Each(context.Background(), nothing); !errors.Is(err, order.ErrSpent) {
		t.Errorf("Each again: %v", err)
	}
	if err := s.Add(1, nil); !errors.Is(err, order.ErrSpent) {
		t.Errorf("Add after Each: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Each(context.Background(), nothing); !errors.Is(err, order.ErrClosed) {
		t.Errorf("Each after Close: %v", err)
	}
	if err := s.Add(1, nil); !errors.Is(err, order.ErrClosed) || s.Full() {
		t.Errorf("Add after Close: %v, full %v", err, s.Full())
	}
}

// Memory: by the sorter's own count at every row, and by the heap, with slack for what the collector
// hasn't found yet.
func TestMemoryStaysWithinItsBound(t *testing.T) {
	const memory, rows, size = 4 << 20, 448 << 10, 256
	r := seeded(t)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	s := order.New(order.Options{Memory: memory, Dir: t.TempDir()})
	defer s.Close()
	payload := make([]byte, 2*size)
	before, most := heap(), int64(0)
	for i := range rows {
		n := r.IntN(2 * size)
		if i%(rows/4) == 0 {
			n = 1 << 20 // now and then a large one
		}
		if i > rows/2 {
			n /= 16 // another mix of rows and index
		}
		if err := s.Add(r.Int64N(1<<40), append(payload[:0], make([]byte, n)...)); err != nil {
			t.Fatal(err)
		}
		if got := s.Accounted(); got > memory {
			t.Fatalf("row %d: %d bytes held", i, got)
		}
		if i%8192 == 0 {
			most = max(most, heap()-before)
		}
	}
	given := 0
	err := s.Each(context.Background(), func(int64, []byte) error {
		if given%8192 == 0 {
			most = max(most, heap()-before)
		}
		given++
		return nil
	})
	runs, bytes := s.Spilled()
	t.Logf("%d rows, %d runs of %d bytes, at most %d KiB of heap", given, runs, bytes, most>>10)
	if bytes < 64<<20 {
		t.Fatalf("only %d bytes", bytes)
	}
	if err != nil || given != rows || most > memory+memory/8 {
		t.Fatalf("%v: %d rows, %d bytes of heap for %d", err, given, most, memory)
	}
}

func TestCancelledMidway(t *testing.T) {
	for _, n := range []int{20_000, 50_000} { // in memory, and not
		rows := random(seeded(t), n, 1000, 100)
		memory := int64(0)
		if n == 20_000 {
			memory = 64 << 20
		}
		for _, after := range []int{0, 1, 10_000} {
			dir := t.TempDir()
			s := order.New(order.Options{Memory: memory, Dir: dir})
			addAll(t, s, rows)
			ctx, cancel := context.WithCancel(context.Background())
			if after == 0 {
				cancel()
			}
			given := 0
			err := s.Each(ctx, func(int64, []byte) error {
				if given++; given == after {
					cancel()
				}
				return nil
			})
			if !errors.Is(err, context.Canceled) || given > after+5000 {
				t.Errorf("cancelled after %d of %d: %v after %d", after, n, err, given)
			}
			cancel()
			closed(t, s, dir)
		}
	}
}

func TestAnErrorOfYieldEndsEach(t *testing.T) {
	rows := random(seeded(t), 50_000, 1000, 100)
	for _, memory := range []int64{0, 64 << 20} {
		enough := errors.New("enough")
		dir := t.TempDir()
		s := order.New(order.Options{Memory: memory, Dir: dir})
		addAll(t, s, rows)
		given := 0
		err := s.Each(context.Background(), func(int64, []byte) error {
			if given++; given == 30_000 {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) || given != 30_000 {
			t.Errorf("%v after %d", err, given)
		}
		closed(t, s, dir)
	}
}

func TestClosedFromWithinYield(t *testing.T) {
	rows := random(seeded(t), 50_000, 1000, 100)
	for _, memory := range []int64{0, 64 << 20} {
		dir := t.TempDir()
		s := order.New(order.Options{Memory: memory, Dir: dir})
		addAll(t, s, rows)
		given := 0
		err := s.Each(context.Background(), func(int64, []byte) error {
			if given++; given == 30_000 {
				return s.Close()
			}
			return nil
		})
		if !errors.Is(err, order.ErrClosed) || given != 30_000 {
			t.Errorf("%v after %d", err, given)
		}
		closed(t, s, dir)
	}
}

func FuzzSort(f *testing.F) {
	f.Add([]byte("\x01\x00a\x00\x00b\x01\x00c"), uint16(0))
	f.Add([]byte("\x05\x04\x03\x02\x01\x00"), uint16(60_000))
	f.Fuzz(func(t *testing.T, data []byte, size uint16) {
		var rows []row
		for i := 0; i+1 < len(data) && len(rows) < 200; i += 2 {
			p := make([]byte, 1+int(data[i+1])*int(size)/255)
			p[0] = byte(i)
			rows = append(rows, row{int64(int8(data[i])), string(p)})
		}
		sortAll(t, 0, rows)
	})
}
