package order

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// file is where runs are: an open file that is gone once it is closed.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// disk is a file with runs. Its errors name the folder, where a full disk is to be looked for; the name
// of the file would help nobody, since it has none.
type disk struct {
	file file
	dir  string
	size int64 // where the next run begins
}

func newDisk(dir string, create func(string) (file, error)) (*disk, error) {
	f, err := create(dir)
	if err != nil {
		return nil, fmt.Errorf("create a temporary file in %s to sort rows: %w", dir, err)
	}
	return &disk{file: f, dir: dir}, nil
}

// WriteAt implements io.WriterAt.
func (d *disk) WriteAt(p []byte, off int64) (int, error) {
	n, err := d.file.WriteAt(p, off)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return n, fmt.Errorf("write sorted rows to a temporary file in %s: %w", d.dir, err)
	}
	return n, nil
}

// ReadAt fills p or fails; the end of the file is damage, as more was written.
func (d *disk) ReadAt(p []byte, off int64) (int, error) {
	n, err := d.file.ReadAt(p, off)
	switch {
	case n == len(p):
		return n, nil
	case err == nil || errors.Is(err, io.EOF):
		return n, fmt.Errorf("%w, in %s: %d bytes at %d are missing", ErrDamaged, d.dir, len(p)-n, off+int64(n))
	default:
		return n, fmt.Errorf("read sorted rows back from a temporary file in %s: %w", d.dir, err)
	}
}

// Close gives the space back.
func (d *disk) Close() error {
	if err := d.file.Close(); err != nil {
		return fmt.Errorf("remove a temporary file in %s: %w", d.dir, err)
	}
	return nil
}

// createFile makes a file that only its owner may read, and takes its name away at once.
func createFile(dir string) (file, error) {
	f, err := os.CreateTemp(dir, "quorate-sort-*")
	if err != nil {
		return nil, err
	}
	if os.Remove(f.Name()) != nil { // a system where an open file keeps its name
		return namedFile{f}, nil
	}
	return f, nil
}

type namedFile struct{ *os.File }

// Close also removes the file, which still has its name.
func (f namedFile) Close() error {
	return errors.Join(f.File.Close(), os.Remove(f.Name()))
}
