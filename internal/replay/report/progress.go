package report

import (
	"bytes"
	"io"
	"strconv"
	"strings"
	"time"
)

// ProgressOptions say where a bar is drawn and what it measures.
type ProgressOptions struct {
	// Terminal says whether there is one; without one nothing is ever printed.
	Terminal bool
	// Total is how many bytes there are to read in all; 0 or less: unknown, as of a pipe.
	Total int64
	// Clock is elapsed time in nanoseconds, from any start; it never goes back.
	Clock func() int64
	// Width is the number of columns; 80 if it is 0.
	Width int
	// ASCII keeps the bar within ASCII.
	ASCII bool
}

// Progress is a bar on a terminal that says how far a replay has come. It is for one goroutine.
type Progress struct {
	o      ProgressOptions
	w      io.Writer
	start  int64
	drawn  int64 // when the bar was last drawn
	shown  bool  // a bar stands on the line of the cursor
	buffer bytes.Buffer
}

// redrawn is the shortest time between two drawings, and before the first: a short run shows no bar.
const redrawn = int64(time.Second / 10)

// NewProgress returns a bar on w, usually standard error. Its clock starts now.
func NewProgress(w io.Writer, o ProgressOptions) *Progress {
	if o.Width == 0 {
		o.Width = 80
	}
	p := &Progress{o: o, w: w}
	if o.Terminal {
		p.start = o.Clock()
		p.drawn = p.start
	}
	return p
}

// Update tells how many bytes and lines have been read in all. It draws at most ten times a second, and
// ignores errors of the terminal: nobody would read of them.
func (p *Progress) Update(read, lines int64) {
	p.draw(func(elapsed int64) string { return p.reading(read, lines, elapsed) })
}

// Decide tells how many of the rows that were put in order have been decided; Update's reading is over
// then. It draws like Update.
func (p *Progress) Decide(decided, rows int64) {
	p.draw(func(int64) string {
		return p.bar(decided, rows, " "+grouped(decided)+" of "+grouped(rows)+" rows decided")
	})
}

func (p *Progress) draw(line func(elapsed int64) string) {
	if !p.o.Terminal {
		return
	}
	now := p.o.Clock()
	if now-p.drawn < redrawn {
		return
	}
	p.drawn, p.shown = now, true
	p.buffer.Reset()
	p.buffer.WriteString("\r")
	p.buffer.WriteString(line(now - p.start))
	p.buffer.WriteString("\x1b[K")
	_, _ = p.w.Write(p.buffer.Bytes())
}

// Clear takes the bar away. Whatever else is printed on the terminal needs that before; the next Update
// that is due draws it again.
func (p *Progress) Clear() {
	if p.shown {
		p.shown = false
		_, _ = io.WriteString(p.w, "\r\x1b[K")
	}
}

// reading is the line while logs are read.
func (p *Progress) reading(read, lines, elapsed int64) string {
	pace := count(lines, "line", "lines")
	if rate := lines * 1000 / max(elapsed/int64(time.Millisecond), 1); rate > 0 {
		pace += ", " + grouped(rate) + "/s"
	}
	if p.o.Total <= 0 {
		return shortened(size(read)+" read, "+pace, p.o.Width-1, "")
	}
	read = min(read, p.o.Total) // a log that is still being written grows meanwhile
	return p.bar(read, p.o.Total, " "+size(read)+" of "+size(p.o.Total)+", "+pace)
}

// bar is a line with a bar in it, in less than the terminal's width, for it must not wrap.
func (p *Progress) bar(part, all int64, tail string) string {
	head := right(strconv.FormatInt(portion(part, all, 100), 10), 3) + " % "
	room := p.o.Width - 1 - len(head) - len(tail)
	if room < 4 {
		return shortened(head+tail[1:], p.o.Width-1, "")
	}
	full, empty := "█", "░"
	if p.o.ASCII {
		full, empty = "#", "."
	}
	done := int(portion(part, all, int64(room)))
	return head + strings.Repeat(full, done) + strings.Repeat(empty, room-done) + tail
}

// size writes bytes in decimal units, three digits or four.
func size(n int64) string {
	const units = "kMGTPE"
	if n < 1000 {
		return strconv.FormatInt(n, 10) + " B"
	}
	unit := 0
	for ; n >= 1_000_000; n /= 1000 {
		unit++
	}
	whole := strconv.FormatInt(n/1000, 10)
	if len(whole) < 3 {
		whole += "." + strconv.FormatInt(n%1000/100, 10)
	}
	return whole + " " + units[unit:unit+1] + "B"
}
