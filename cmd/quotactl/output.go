package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// outputFile is a file that a command writes. It is put in its place whole, when it is done: until then,
// and where the command fails, what was there stays. What isn't a regular file (a device, a pipe) is
// written as it is, and never replaced or removed.
type outputFile struct {
	*os.File
	path      string // where it belongs
	temporary bool
}

// createOutput opens an output, which must be none of the files that are read, nor another output.
func createOutput(path string, others ...string) (*outputFile, error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	info, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, other := range others {
		if theirs, err := os.Stat(other); err == nil && info != nil && info.Mode().IsRegular() && os.SameFile(info, theirs) || samePath(path, other) {
			return nil, fmt.Errorf("%s would be written over: it is also %s", path, other)
		}
	}
	if info != nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		return &outputFile{File: f, path: path}, err
	}
	f, err := os.OpenFile(path+"."+strconv.Itoa(os.Getpid())+".tmp", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	return &outputFile{File: f, path: path, temporary: true}, err
}

func samePath(a, b string) bool {
	a, errA := filepath.Abs(a)
	b, errB := filepath.Abs(b)
	return errA == nil && errB == nil && a == b
}

// finish puts the file in its place.
func (o *outputFile) finish() error {
	err := o.Close()
	if err == nil && o.temporary {
		err = os.Rename(o.Name(), o.path)
	}
	if err != nil {
		return errors.Join(err, o.remove())
	}
	return nil
}

// abandon leaves what was there.
func (o *outputFile) abandon() error { return errors.Join(o.Close(), o.remove()) }

func (o *outputFile) remove() error {
	if !o.temporary {
		return nil
	}
	if err := os.Remove(o.Name()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
