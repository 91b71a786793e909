package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path"
	"strings"
)

// tape writes a tar that holds no time, owner or order but the caller's. It keeps the first error.
type tape struct {
	out *bytes.Buffer
	tar *tar.Writer
	err error
}

func newTape() tape {
	out := new(bytes.Buffer)
	return tape{out: out, tar: tar.NewWriter(out)}
}

func (t *tape) entry(h tar.Header, data []byte) {
	h.Size, h.Format = int64(len(data)), tar.FormatPAX
	if t.err == nil {
		t.err = t.tar.WriteHeader(&h)
	}
	if t.err == nil {
		_, t.err = t.tar.Write(data)
	}
}

func (t *tape) file(name string, data []byte, mode int64) {
	t.entry(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}, data)
}

func (t *tape) close() ([]byte, error) {
	if t.err == nil {
		t.err = t.tar.Close()
	}
	return t.out.Bytes(), t.err
}

// layer is the file system of an image.
type layer struct {
	tape
	first string          // its first file
	made  map[string]bool // folders
}

func newLayer() *layer {
	return &layer{tape: newTape(), made: map[string]bool{".": true, "/": true}}
}

// add adds what an argument of mkimage says.
func (l *layer) add(spec string) error {
	if dest, target, ok := strings.Cut(spec, "->"); ok {
		name := l.place(dest)
		l.entry(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, nil)
		return nil
	}
	dest, source, ok := strings.Cut(spec, "=")
	switch {
	case ok && source != "":
		return l.copy(dest, source)
	case !ok && strings.HasSuffix(dest, "/"):
		name := l.place(strings.TrimSuffix(dest, "/"))
		l.made[name] = true
		l.entry(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o1777}, nil)
		return nil
	default:
		return fmt.Errorf("cannot read %q: want /DEST=FILE, /DEST->TARGET or /DEST/", spec)
	}
}

func (l *layer) copy(dest, source string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	name := l.place(dest)
	if l.first == "" {
		l.first = "/" + name
	}
	mode := int64(0o644)
	if info.Mode().Perm()&0o100 != 0 {
		mode = 0o755
	}
	l.file(name, data, mode)
	return nil
}

// place makes the folders above dest, outermost first, and returns its name in the tar.
func (l *layer) place(dest string) string {
	name := strings.TrimPrefix(dest, "/")
	var missing []string
	for dir := path.Dir(name); !l.made[dir]; dir = path.Dir(dir) {
		l.made[dir] = true
		missing = append([]string{dir}, missing...)
	}
	for _, dir := range missing {
		l.entry(tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}, nil)
	}
	return name
}
