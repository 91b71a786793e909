package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// maxFrame is how many bytes of a snapshot one checksum covers at most.
const maxFrame = 64 << 10

// ErrSnapshot is wrapped by every error about a snapshot that can't be restored.
var ErrSnapshot = errors.New("snapshot can't be restored")

// frameWriter cuts a stream of values into checksummed frames. After an error it
// swallows the rest; the error is looked at once, at the end.
type frameWriter struct {
	w       io.Writer
	buf     []byte
	written int64
	err     error
}

func (f *frameWriter) raw(b []byte) {
	for len(f.buf)+len(b) > maxFrame {
		n := maxFrame - len(f.buf)
		f.buf = append(f.buf, b[:n]...)
		b = b[n:]
		f.flush()
	}
	f.buf = append(f.buf, b...)
}

func (f *frameWriter) u64(v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	f.raw(b[:])
}

func (f *frameWriter) uvarint(v uint64) {
	var b [binary.MaxVarintLen64]byte
	f.raw(b[:binary.PutUvarint(b[:], v)])
}

func (f *frameWriter) flag(v bool) {
	if v {
		f.raw([]byte{1})
		return
	}
	f.raw([]byte{0})
}

func (f *frameWriter) flush() {
	var head [8]byte
	binary.LittleEndian.PutUint32(head[:], uint32(len(f.buf)))
	binary.LittleEndian.PutUint32(head[4:], castagnoli(f.buf))
	f.out(head[:])
	f.out(f.buf)
	f.buf = f.buf[:0]
}

// close writes what is left and the empty frame that ends the stream.
func (f *frameWriter) close() {
	if len(f.buf) > 0 {
		f.flush()
	}
	f.flush()
}

func (f *frameWriter) out(b []byte) {
	if f.err != nil {
		return
	}
	n, err := f.w.Write(b)
	f.written += int64(n)
	f.err = err
}

// frameReader reads what a frameWriter wrote. After an error it yields zeros; the
// error is looked at where it matters.
type frameReader struct {
	r    io.Reader
	buf  []byte
	left []byte
	err  error
}

func (f *frameReader) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: %w", ErrSnapshot, fmt.Errorf(format, args...))
	}
}

// next loads the next frame.
func (f *frameReader) next() {
	var head [8]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		f.fail("read a frame: %w", err)
		return
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > maxFrame {
		f.fail("a frame of %d bytes", n)
		return
	}
	f.buf = append(f.buf[:0], make([]byte, n)...)
	if _, err := io.ReadFull(f.r, f.buf); err != nil {
		f.fail("read a frame: %w", err)
		return
	}
	if got, want := castagnoli(f.buf), binary.LittleEndian.Uint32(head[4:]); got != want {
		f.fail("checksum %08x, written as %08x", got, want)
		return
	}
	f.left = f.buf
}

// raw fills dst.
func (f *frameReader) raw(dst []byte) {
	for len(dst) > 0 {
		if f.err == nil && len(f.left) == 0 {
			f.next()
		}
		if f.err != nil || len(f.left) == 0 {
			f.fail("it ends too early")
			clear(dst)
			return
		}
		n := copy(dst, f.left)
		dst, f.left = dst[n:], f.left[n:]
	}
}

// bytes reads n bytes, a frame's worth at a time, so that a length that lies
// costs no more memory than the stream has bytes.
func (f *frameReader) bytes(n uint64) []byte {
	var b []byte
	for n > 0 && f.err == nil {
		part := make([]byte, min(n, maxFrame))
		f.raw(part)
		b = append(b, part...)
		n -= uint64(len(part))
	}
	return b
}

func (f *frameReader) u64() uint64 {
	var b [8]byte
	f.raw(b[:])
	return binary.LittleEndian.Uint64(b[:])
}

func (f *frameReader) ReadByte() (byte, error) {
	var b [1]byte
	f.raw(b[:])
	return b[0], f.err
}

func (f *frameReader) uvarint() uint64 {
	v, err := binary.ReadUvarint(f)
	if err != nil {
		f.fail("read a number: %w", err)
		return 0
	}
	return v
}

func (f *frameReader) flag() bool {
	b, _ := f.ReadByte()
	if b > 1 {
		f.fail("a flag of %d", b)
	}
	return b == 1
}

// end verifies that the stream ends here.
func (f *frameReader) end() {
	if f.err == nil && len(f.left) == 0 {
		f.next()
	}
	if f.err == nil && len(f.buf) > 0 {
		f.fail("it goes on where it should end")
	}
}
