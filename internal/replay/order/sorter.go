package order

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
)

// MaxPayload is the most that one row may hold, in bytes.
const MaxPayload = 16 << 20

// MinMemory is the least that a Sorter works in, in bytes; Options that say less mean this.
const MinMemory = 1 << 20

// A unit is the size of a block, of a chunk of the index and of a frame: a 64th of the memory, so that
// many runs can be merged at once, within these bounds. Larger ones gain nothing.
const (
	minUnit = MinMemory / 64
	maxUnit = 256 << 10
)

var (
	// ErrTooLarge says that a row is longer than MaxPayload. The sorter goes on without it.
	ErrTooLarge = errors.New("row is too large to sort")
	// ErrClosed says that the sorter was closed.
	ErrClosed = errors.New("sorter is closed")
	// ErrSpent says that Each was called before; rows neither come out twice nor go in after it.
	ErrSpent = errors.New("sorter gave out its rows already")
	// ErrDamaged says that what was read back from the disk isn't what was written.
	ErrDamaged = errors.New("sorted rows were damaged on disk")
)

// Options of a Sorter.
type Options struct {
	// Memory is the most to hold, in bytes, at least MinMemory. More memory means fewer, longer runs.
	Memory int64
	// Dir is the folder for the temporary file; "" is os.TempDir(). It is written to only where the rows
	// don't fit in Memory, and then takes about their size, twice that where runs are merged in passes.
	Dir string
}

// Sorter takes rows and gives them back in order. Use it from one goroutine. After an error other than
// ErrTooLarge every call but Close returns that error.
type Sorter struct {
	memory  int64
	dir     string
	unit    int
	create  func(dir string) (file, error)
	held    *held
	scratch []byte // a unit for frames to be written, made when needed
	disk    *disk  // nil until something is spilled
	runs    []run  // on it, in the order of Add
	spilled int
	written int64
	rows    int64
	bytes   int64 // of all payloads
	last    int64 // time of the last row
	inOrder bool
	spent   bool
	err     error
}

// New makes a Sorter. Close it.
func New(o Options) *Sorter {
	return newSorter(o, createFile)
}

func newSorter(o Options, create func(string) (file, error)) *Sorter {
	memory := max(o.Memory, MinMemory)
	unit := min(1<<(bits.Len64(uint64(memory)/64)-1), maxUnit)
	dir := o.Dir
	if dir == "" {
		dir = os.TempDir()
	}
	return &Sorter{
		memory: memory, dir: dir, unit: unit, create: create, inOrder: true,
		// Two units are for sorting a chunk and for writing a frame.
		held: newHeld(unit, memory-2*int64(unit)),
	}
}

// Add takes a row: its time, in any unit, also negative, and its payload, of which it keeps a copy.
// Rows of one time keep the order in which they were added. It fails with ErrTooLarge, with ErrSpent
// after Each, and where rows had to go to disk and couldn't.
func (s *Sorter) Add(time int64, payload []byte) error {
	switch {
	case s.err != nil:
		return s.err
	case s.spent:
		return ErrSpent
	case len(payload) > MaxPayload:
		return ErrTooLarge
	}
	if err := s.take(time, payload); err != nil {
		return s.fail(err)
	}
	s.inOrder = s.inOrder && (s.rows == 0 || time >= s.last)
	s.last = time
	s.rows++
	s.bytes += int64(len(payload))
	return nil
}

// take puts a row into memory, or past it where it is too large.
func (s *Sorter) take(time int64, payload []byte) error {
	if !s.held.fits(len(payload)) {
		if err := s.spill(context.Background()); err != nil {
			return err
		}
	}
	if !s.held.fits(len(payload)) {
		return s.spillRow(time, payload)
	}
	s.held.add(time, payload)
	return nil
}

// fail keeps the error for later calls, and gives memory and disk back at once: others may wait for the
// space on a full disk.
func (s *Sorter) fail(err error) error {
	_ = s.free() // the error before is the one to be told
	s.err = err
	return err
}

// Full says that the next row, if it is as long as the others are on average, goes beyond the memory and
// makes the sorter write to disk. Rows that were in order so far may have a better way than that.
func (s *Sorter) Full() bool {
	return s.rows > 0 && s.err == nil && !s.held.fits(int(s.bytes/s.rows))
}

// InOrder says that no row came before an earlier one so far.
func (s *Sorter) InOrder() bool { return s.inOrder }

// Rows is the number of rows added.
func (s *Sorter) Rows() int64 { return s.rows }

// Spilled says how often the memory was emptied to disk, and how many bytes were written there, passes of
// merging included.
func (s *Sorter) Spilled() (runs int, bytes int64) { return s.spilled, s.written }

// Each calls yield with every row, in order. The payload is good during the call. It may be called once,
// and ends with the first error of yield, returned as it is, of ctx or of the disk; an error may come
// after rows that were right.
func (s *Sorter) Each(ctx context.Context, yield func(time int64, payload []byte) error) error {
	switch {
	case s.err != nil:
		return s.err
	case s.spent:
		return ErrSpent
	}
	s.spent = true
	given := int64(0)
	err := s.each(ctx, func(time int64, payload []byte) error {
		if s.err != nil { // closed by an earlier yield
			return s.err
		}
		given++
		return yield(time, payload)
	})
	switch {
	case s.err != nil:
		return s.err
	case err == nil && given != s.rows:
		return s.fail(fmt.Errorf("%w: %d of %d rows came back", ErrDamaged, given, s.rows))
	case err != nil:
		return s.fail(err)
	default:
		return nil
	}
}

func (s *Sorter) each(ctx context.Context, yield func(int64, []byte) error) error {
	if s.spilled == 0 {
		return merge(ctx, s.held.sources(), yield)
	}
	// The rest as well: it would have to share the memory with the buffers of the runs.
	if err := s.spill(ctx); err != nil {
		return err
	}
	s.held.lend()
	if err := s.mergePasses(ctx); err != nil {
		return err
	}
	sources := s.sources(s.runs)
	s.held.release()
	return merge(ctx, sources, yield)
}

// Close gives back memory and disk. It may be called at any time, also from the yield of Each, which then
// ends with ErrClosed, and again.
func (s *Sorter) Close() error {
	err := s.free()
	s.err = ErrClosed
	return err
}

func (s *Sorter) free() error {
	s.held.release()
	s.scratch, s.runs = nil, nil
	if s.disk == nil {
		return nil
	}
	d := s.disk
	s.disk = nil
	return d.Close()
}
