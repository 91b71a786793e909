package main

import (
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/quorate/quorate/internal/replay"
	"github.com/quorate/quorate/internal/replay/report"
)

// newProgress returns a bar on errs, if that is a terminal, and a function that moves it on. How many
// bytes have been read it counts where the sources are read.
func newProgress(errs io.Writer, sources []replay.Source) (bar *report.Progress, moved func(lines int64)) {
	started := time.Now()
	o := report.ProgressOptions{Clock: func() int64 { return int64(time.Since(started)) }}
	if f, ok := errs.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		o.Terminal = true
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			o.Width = width
		}
	}
	for _, s := range sources {
		info, err := os.Stat(s.Name)
		if !s.Again || err != nil { // a pipe: nobody knows how much comes
			o.Total = 0
			break
		}
		o.Total += info.Size()
	}
	read := new(int64)
	for i := range sources {
		open := sources[i].Open
		sources[i].Open = func() (io.ReadCloser, error) {
			if i == 0 { // a second pass begins anew
				*read = 0
			}
			f, err := open()
			if err != nil {
				return nil, err
			}
			return &metered{f, read}, nil
		}
	}
	bar = report.NewProgress(errs, o)
	return bar, func(lines int64) { bar.Update(*read, lines) }
}

// metered is a source that counts what is read of it.
type metered struct {
	io.ReadCloser
	read *int64
}

// Read implements io.Reader.
func (m *metered) Read(b []byte) (int, error) {
	n, err := m.ReadCloser.Read(b)
	*m.read += int64(n)
	return n, err
}
