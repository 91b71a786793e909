package partition

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"go.etcd.io/bbolt"
)

// verifyPages looks through a log file's pages before bbolt opens it for writing. bbolt looks for the free ones then, on
// a goroutine of its own, where it panics over what it can't make sense of: no replica could be kept out for that, the
// whole process would end, at every start. Opened for reading it doesn't, and holds the file's lock meanwhile.
func verifyPages(path string) (err error) {
	db, err := bbolt.Open(path, 0o600, readOnly())
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	defer func() { err = errors.Join(err, f.Close(), db.Close()) }()
	return db.View(func(tx *bbolt.Tx) error {
		size := int64(db.Info().PageSize)
		w := pageWalk{file: f, size: size, bound: uint64(tx.Size() / size), seen: map[uint64]bool{}}
		return w.walk(uint64(tx.Cursor().Bucket().RootPage()), nil, nil)
	})
}

// pageWalk follows the tree of pages that bbolt keeps in a file (its internal/common/page.go): each begins with its
// number, its kind and how many elements it has; an element says where in the page its key is, and names another
// page or is followed by its value. The value of a bucket names the page that its own tree begins with.
type pageWalk struct {
	file  io.ReaderAt
	size  int64  // of a page
	bound uint64 // no page has this number, or a higher one
	seen  map[uint64]bool
	logs  bool // these pages are of the log's entries
}

const (
	pageHead    = 16 // bytes of a page before its elements, and of an element
	branchPage  = 1
	leafPage    = 2
	bucketValue = 1
	bucketHead  = 16 // bytes of a bucket: its first page, and a counter
)

// walk verifies a page and all below it. Its keys are low at least, and below high.
func (w *pageWalk) walk(number uint64, low, high []byte) error {
	page, err := w.read(number)
	if err != nil {
		return err
	}
	return w.elements(number, page, low, high)
}

// elements verifies what a page holds, and all below it.
func (w *pageWalk) elements(number uint64, page []byte, low, high []byte) (err error) {
	kind, count := binary.LittleEndian.Uint16(page[8:]), int(binary.LittleEndian.Uint16(page[10:]))
	if kind != leafPage && (kind != branchPage || count == 0) {
		return w.damaged(number, "is of kind %d, with %d elements", kind, count)
	}
	elements := make([]element, count)
	for i := range elements {
		e := &elements[i]
		if !e.read(page, i, kind) {
			return w.damaged(number, "has its element %d beyond its end", i)
		}
		if i > 0 && bytes.Compare(elements[i-1].key, e.key) >= 0 || bytes.Compare(low, e.key) > 0 || high != nil && bytes.Compare(e.key, high) >= 0 {
			return w.damaged(number, "has its element %d in the wrong place", i)
		}
	}
	for i, e := range elements {
		switch {
		case kind == branchPage && i+1 < count:
			err = w.walk(e.page, e.key, elements[i+1].key)
		case kind == branchPage:
			err = w.walk(e.page, e.key, high)
		case e.bucket:
			err = w.bucket(number, e)
		case w.logs && !rawEntry(e.value).decodable():
			err = w.damaged(number, "has in its element %d what is no entry", i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucket verifies the tree of a bucket. One that is small is a leaf within its value.
func (w *pageWalk) bucket(number uint64, e element) error {
	if len(e.value) < bucketHead {
		return w.damaged(number, "has a bucket of %d bytes", len(e.value))
	}
	below := *w
	below.logs = string(e.key) == logsBucket
	if root := binary.LittleEndian.Uint64(e.value); root != 0 {
		return below.walk(root, nil, nil)
	}
	leaf := e.value[bucketHead:]
	if len(leaf) < pageHead || binary.LittleEndian.Uint16(leaf[8:]) != leafPage {
		return w.damaged(number, "has a bucket in itself that is no leaf")
	}
	return below.elements(number, leaf, nil, nil)
}

// read returns a page that nothing else has named.
func (w *pageWalk) read(number uint64) ([]byte, error) {
	var head [pageHead]byte
	if number < 2 || number >= w.bound {
		return nil, w.damaged(number, "is named, of %d", w.bound)
	}
	if _, err := w.file.ReadAt(head[:], int64(number)*w.size); err != nil {
		return nil, w.unread(number, err)
	}
	overflow := uint64(binary.LittleEndian.Uint32(head[12:]))
	if binary.LittleEndian.Uint64(head[:]) != number || overflow >= w.bound-number {
		return nil, w.damaged(number, "is another one")
	}
	for n := number; n <= number+overflow; n++ {
		if w.seen[n] {
			return nil, w.damaged(n, "is named twice")
		}
		w.seen[n] = true
	}
	page := make([]byte, int64(1+overflow)*w.size)
	if _, err := w.file.ReadAt(page, int64(number)*w.size); err != nil {
		return nil, w.unread(number, err)
	}
	return page, nil
}

func (w *pageWalk) damaged(number uint64, what string, args ...any) error {
	return fmt.Errorf("%w: page %d %s", ErrDamaged, number, fmt.Sprintf(what, args...))
}

// unread tells a file that is too short from one that can't be read.
func (w *pageWalk) unread(number uint64, err error) error {
	if errors.Is(err, io.EOF) {
		return w.damaged(number, "is beyond the end of the file")
	}
	return fmt.Errorf("read page %d: %w", number, err)
}

// element is one of a page.
type element struct {
	key    []byte
	page   uint64 // of a branch
	value  []byte // of a leaf
	bucket bool
}

// read takes the element with number i out of a page; false if it isn't within it.
func (e *element) read(page []byte, i int, kind uint16) bool {
	at := uint64(pageHead * (1 + i))
	if at+pageHead > uint64(len(page)) {
		return false
	}
	head := page[at : at+pageHead]
	word := func(n int) uint64 { return uint64(binary.LittleEndian.Uint32(head[4*n:])) }
	if kind == branchPage {
		from := at + word(0)
		if from+word(1) > uint64(len(page)) {
			return false
		}
		e.key, e.page = page[from:from+word(1)], binary.LittleEndian.Uint64(head[8:])
		return true
	}
	from := at + word(1)
	middle := from + word(2)
	if middle+word(3) > uint64(len(page)) {
		return false
	}
	e.key, e.value, e.bucket = page[from:middle], page[middle:middle+word(3)], word(0)&bucketValue != 0
	return true
}
