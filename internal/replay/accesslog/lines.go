package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

const (
	defaultMaxLine = 1 << 20
	bufferSize     = 256 << 10
)

// lines splits a log into lines, each without its end. A line that is too long is skipped in constant
// memory.
type lines struct {
	in     *bufio.Reader
	packed bool
	end    byte // of a line: \n, or \r where there is no other
	max    int
	long   []byte   // a line that the buffer of in doesn't hold
	again  []pushed // lines to be read again, the next one first
	number int64    // of the line read last, from 1
	over   error    // why there is no more: io.EOF, or what went wrong
}

// pushed is a line to be read again; err is errTooLong where nothing is left of it.
type pushed struct {
	line []byte
	err  error
}

var errTooLong = errors.New("line is too long")

// openLines finds out how the input is packed and how its lines end.
func openLines(r io.Reader, maxLine int) (*lines, error) {
	if maxLine <= 0 {
		maxLine = defaultMaxLine
	}
	l := &lines{in: bufio.NewReaderSize(r, bufferSize), end: '\n', max: maxLine}
	start, err := l.in.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if bytes.Equal(start, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(l.in)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		l.in, l.packed = bufio.NewReaderSize(unpacked, bufferSize), true
	}
	start, err = l.in.Peek(bufferSize)
	if err != nil && len(start) == 0 && !errors.Is(err, io.EOF) {
		return nil, l.explain(err)
	}
	if bytes.HasPrefix(start, []byte{0xff, 0xfe}) || bytes.HasPrefix(start, []byte{0xfe, 0xff}) {
		return nil, errors.New("the text is UTF-16: convert it to UTF-8 first, as with iconv")
	}
	if bytes.HasPrefix(start, []byte("\xef\xbb\xbf")) {
		start = start[3:]
		_, _ = l.in.Discard(3) // it has just been peeked at
	}
	if bytes.IndexByte(start, '\n') < 0 && bytes.IndexByte(bytes.TrimRight(start, "\r"), '\r') >= 0 {
		l.end = '\r'
	}
	return l, nil
}

// next returns the next line, errTooLong for one that was skipped, or io.EOF. The line is good until the
// next call.
func (l *lines) next() ([]byte, error) {
	if len(l.again) > 0 {
		p := l.again[0]
		l.again = l.again[1:]
		l.number++
		return p.line, p.err
	}
	if l.over != nil {
		return nil, l.over
	}
	line, err := l.in.ReadSlice(l.end)
	if errors.Is(err, bufio.ErrBufferFull) {
		line, err = l.nextLong(line)
	}
	switch {
	case errors.Is(err, io.EOF):
		l.over = io.EOF
		if line = bytes.TrimRight(line, "\x00"); len(line) == 0 {
			return nil, io.EOF
		}
	case errors.Is(err, errTooLong):
	case err != nil: // what there is of the line may lack its end
		l.over = l.explain(err)
		return nil, l.over
	default:
		line = line[:len(line)-1]
	}
	l.number++
	line = bytes.TrimSuffix(line, []byte{'\r'})
	if errors.Is(err, errTooLong) || len(line) > l.max {
		return nil, errTooLong
	}
	return line, nil
}

// nextLong reads the rest of a line whose beginning fills the buffer.
func (l *lines) nextLong(start []byte) ([]byte, error) {
	l.long = append(l.long[:0], start...)
	for {
		more, err := l.in.ReadSlice(l.end)
		if len(l.long)+len(more) > l.max+2 { // 2 for its end
			return nil, l.skip(err)
		}
		l.long = append(l.long, more...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return l.long, err
		}
	}
}

// skip reads over the rest of a line that is too long, and returns errTooLong unless it can't be read.
func (l *lines) skip(err error) error {
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = l.in.ReadSlice(l.end)
	}
	switch {
	case errors.Is(err, io.EOF):
		l.over = io.EOF
	case err != nil:
		return err
	}
	return errTooLong
}

// push has lines read again; the line read last comes before them.
func (l *lines) push(again []pushed) {
	l.again = append(again, l.again...)
	l.number -= int64(len(again))
}

// explain says where reading failed.
func (l *lines) explain(err error) error {
	if l.packed && errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the gzip stream ends in the middle: the file was cut off")
	}
	return fmt.Errorf("after line %d: %w", l.number, err)
}

// hasLineEnd tells whether a text holds line ends of another kind than the log's, which would hide a row in
// another.
func hasLineEnd(text []byte) bool {
	return bytes.IndexByte(text, '\r') >= 0 || bytes.IndexByte(text, '\n') >= 0
}
