package checker

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Writer writes a history. Many goroutines may write at once. It buffers: a history is whole only after
// Close, or Flush.
type Writer struct {
	mu   sync.Mutex
	out  *bufio.Writer
	file io.Closer // nil: somebody else's
	err  error     // the first; nothing is written after it
}

// NewWriter returns one that writes to w, which it doesn't close.
func NewWriter(w io.Writer) *Writer { return &Writer{out: bufio.NewWriterSize(w, 1<<16)} }

// Create returns one that writes a file anew.
func Create(path string) (*Writer, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	w := NewWriter(f)
	w.file = f
	return w, nil
}

// Write writes lines. A line that makes no sense is an error and isn't written: so the fault shows where it is
// made. Every error comes again from Close, so that callers in a hurry may pass over it here.
func (w *Writer) Write(lines ...Line) error {
	for _, l := range lines {
		text, err := encode(l)
		w.mu.Lock()
		if w.err == nil && err == nil {
			_, err = w.out.Write(text)
		}
		if w.err == nil {
			w.err = err
		}
		err = w.err
		w.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// Flush hands on what is buffered.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flush()
}

func (w *Writer) flush() error {
	if err := w.out.Flush(); w.err == nil {
		w.err = err
	}
	return w.err
}

// Close flushes, closes the file that Create opened, and returns the first error of all.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.flush()
	if w.file != nil {
		err = errors.Join(err, w.file.Close())
		w.file = nil
	}
	return err
}

// encode returns a line's text: its kind, then its own fields.
func encode(l Line) ([]byte, error) {
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("write a line of kind %s: %w", l.kind(), err)
	}
	body, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("write a line of kind %s: %w", l.kind(), err)
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, `{"kind":%q,`, l.kind())
	text.Write(body[1:])
	text.WriteByte('\n')
	return text.Bytes(), nil
}
