package order

import (
	"context"
	"os"
)

// File is the seam for a disk that fails, loses and mixes up.
type File = file

// NewOn makes a Sorter whose files come from create.
func NewOn(o Options, create func(dir string) (File, error)) *Sorter {
	return newSorter(o, create)
}

// CreateFile is where files come from otherwise.
var CreateFile = createFile

// KeepingName is f as on a system where an open file keeps its name.
func KeepingName(f *os.File) File { return namedFile{f} }

// Accounted is what s holds by its own count, in bytes.
func (s *Sorter) Accounted() int64 {
	n := s.held.used + int64(s.held.unit*(len(s.held.freeBlocks)+len(s.held.freeChunks)))
	return n + int64(cap(s.held.spare)*entrySize+cap(s.scratch))
}

// Unit is the size of its blocks, chunks and frames.
func (s *Sorter) Unit() int { return s.unit }

// Frame is rows, as appendRow wrote them, as the frame at the beginning of a file.
func Frame(rows []byte) []byte {
	frame := append(make([]byte, frameHead), rows...)
	sealFrame(0, frame, nil)
	return frame
}

// AppendRow is a row in a frame.
func AppendRow(dst []byte, time int64, payload []byte) []byte {
	return append(appendRowHead(dst, time, len(payload)), payload...)
}

// ReadRun reads a file that is one run, from first on, with a buffer of so many bytes.
func ReadRun(f File, size int64, first int64, buffer int, yield func(time int64, payload []byte) error) error {
	d := &disk{file: f}
	r := run{span: span{first: first}, end: size}
	return merge(context.Background(), []source{newRunSource(d, []run{r}, make([]byte, buffer))}, yield)
}
