package order

import (
	"encoding/binary"
	"fmt"
	"io"
)

// run is a part of the file: frames with rows in order.
type run struct {
	span           // seq is its place in the list of runs
	off, end int64 // in the file
	widest   int   // bytes of its largest frame
}

// runWriter writes one run.
type runWriter struct {
	to    io.WriterAt
	frame []byte // the frame to come, its head left open; its capacity is what a frame may take
	run   run    // end is where the next frame goes
	rows  int64
}

// newRunWriter starts a run at off; buffer is the memory of its frames.
func newRunWriter(to io.WriterAt, off int64, buffer []byte) *runWriter {
	return &runWriter{to: to, frame: buffer[:frameHead], run: run{off: off, end: off}}
}

func (w *runWriter) add(time int64, payload []byte) error {
	if len(w.frame) > frameHead && len(w.frame)+rowHead+len(payload) > cap(w.frame) {
		if err := w.flush(nil); err != nil {
			return err
		}
	}
	if w.rows == 0 {
		w.run.first = time
	}
	w.run.last = time
	w.rows++
	w.frame = appendRowHead(w.frame, time, len(payload))
	if len(w.frame)+len(payload) > cap(w.frame) {
		return w.flush(payload) // a large row: a frame for itself, written from where it is
	}
	w.frame = append(w.frame, payload...)
	return nil
}

// flush writes the frame, of which tail is the end.
func (w *runWriter) flush(tail []byte) error {
	sealFrame(w.run.end, w.frame, tail)
	for _, part := range [][]byte{w.frame, tail} {
		if len(part) == 0 {
			continue
		}
		if _, err := w.to.WriteAt(part, w.run.end); err != nil {
			return err
		}
		w.run.end += int64(len(part))
	}
	w.run.widest = max(w.run.widest, len(w.frame)+len(tail))
	w.frame = w.frame[:frameHead]
	return nil
}

// close writes what is left, and gives the run.
func (w *runWriter) close() (run, error) {
	if len(w.frame) > frameHead {
		if err := w.flush(nil); err != nil {
			return run{}, err
		}
	}
	return w.run, nil
}

// runSource gives the rows of runs that follow each other.
type runSource struct {
	from   io.ReaderAt
	chain  []run  // those left, the first one being read
	off    int64  // of the next frame
	buffer []byte // as large as any frame of the chain
	rows   []byte // what is left of the frame
	time   int64  // of the row before
}

func newRunSource(from io.ReaderAt, chain []run, buffer []byte) *runSource {
	return &runSource{from: from, chain: chain, off: chain[0].off, buffer: buffer, time: chain[0].first}
}

func (s *runSource) next() (row, bool, error) {
	if len(s.rows) == 0 {
		if s.off == s.chain[0].end {
			if len(s.chain) == 1 {
				return row{}, false, nil
			}
			s.chain = s.chain[1:]
			s.off = s.chain[0].off
		}
		if err := s.readFrame(); err != nil {
			return row{}, false, err
		}
	}
	time, payload, rest, ok := cutRow(s.rows)
	if !ok || time < s.time {
		return row{}, false, fmt.Errorf("%w: rows before byte %d", ErrDamaged, s.off)
	}
	s.rows, s.time = rest, time
	return row{time, s.chain[0].seq, payload}, true, nil
}

// readFrame reads the frame at off. Its length is believed only as far as the run and the buffer reach.
func (s *runSource) readFrame() error {
	head := s.buffer[:frameHead]
	if _, err := s.from.ReadAt(head, s.off); err != nil {
		return err
	}
	n := int64(binary.LittleEndian.Uint32(head))
	if size := n + frameHead; n == 0 || size > int64(len(s.buffer)) || size > s.chain[0].end-s.off {
		return fmt.Errorf("%w: at byte %d a frame of %d bytes", ErrDamaged, s.off, n)
	}
	frame := s.buffer[:frameHead+n]
	if _, err := s.from.ReadAt(frame, s.off); err != nil {
		return err
	}
	if err := checkFrame(s.off, frame); err != nil {
		return err
	}
	s.off += int64(len(frame))
	s.rows = frame[frameHead:]
	return nil
}
