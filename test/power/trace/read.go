package trace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ErrUnreadable is what every error of Read wraps.
var ErrUnreadable = errors.New("trace can't be read")

// Call is one system call.
type Call struct {
	Thread int
	Name   string
	Args   []Arg
	// Began and Ended are the lines at which it began and ended: an order of all calls of a trace. Ended is 0 if
	// it never did, because its process was killed.
	Began, Ended int
	// BeganAt and EndedAt are wall clock times in nanoseconds.
	BeganAt, EndedAt int64
	// Failed is the name of the error that it ended with, such as EIO; empty if none.
	Failed string
	// Result is what it returned, without the file's name that strace adds.
	Result int64
	// File is that name, for calls that return a file.
	File string
}

// Arg is one argument of a call.
type Arg struct {
	Text  string // as strace wrote it
	Bytes string // of a string
	File  string // of a descriptor: the path, or what strace says of a socket
}

// Done tells whether the call ended well.
func (c *Call) Done() bool { return c.Ended > 0 && c.Failed == "" }

// FirstFile is the name of the file that the first argument stands for.
func (c *Call) FirstFile() string {
	if len(c.Args) == 0 {
		return ""
	}
	return c.Args[0].File
}

// Read reads a whole trace. The calls come in the order in which they began.
func Read(r io.Reader) ([]*Call, error) {
	var all []*Call
	open := map[int]*pending{}
	lines := bufio.NewReaderSize(r, 1<<20)
	for number := 1; ; number++ {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break // also what strace had begun to write when it was stopped
		}
		if err != nil {
			return nil, err
		}
		c, err := readLine(strings.TrimSuffix(line, "\n"), number, open)
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrUnreadable, number, err)
		}
		if c != nil {
			all = append(all, c)
		}
	}
	for _, p := range open {
		if err := p.call.parse(p.args); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrUnreadable, p.call.Began, err)
		}
	}
	return all, nil
}

// pending is a call that hasn't ended, and what was written of its arguments.
type pending struct {
	call *Call
	args string
}

const (
	unfinished = " <unfinished ...>"
	resumed    = " resumed>"
	detached   = " <detached ...>" // its process was being killed
)

// readLine returns the call that begins with a line, nil if none does.
func readLine(line string, number int, open map[int]*pending) (*Call, error) {
	thread, at, rest, err := head(line)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(rest, "+++ ") || strings.HasPrefix(rest, "--- ") {
		return nil, nil
	}
	if after, ok := strings.CutPrefix(rest, "<... "); ok {
		name, text, found := strings.Cut(after, resumed)
		p := open[thread]
		if !found || p == nil || p.call.Name != name {
			return nil, fmt.Errorf("%q is resumed and didn't begin", name)
		}
		delete(open, thread)
		if args, ok := strings.CutSuffix(text, detached); ok {
			return nil, p.call.parse(p.args + args)
		}
		return nil, p.call.end(p.args+text, number, at, true)
	}
	name, text, found := strings.Cut(rest, "(")
	if !found {
		return nil, fmt.Errorf("no call: %.80q", rest)
	}
	c := &Call{Thread: thread, Name: name, Began: number, BeganAt: at}
	if args, ok := strings.CutSuffix(text, unfinished); ok {
		open[thread] = &pending{c, args}
		return c, nil
	}
	if args, ok := strings.CutSuffix(text, detached); ok {
		return c, c.parse(args)
	}
	return c, c.end(text, number, at, false)
}

// head takes thread and time off a line.
func head(line string) (thread int, at int64, rest string, err error) {
	first, rest, _ := strings.Cut(line, " ")
	when, rest, found := strings.Cut(strings.TrimLeft(rest, " "), " ")
	seconds, fraction, dotted := strings.Cut(when, ".")
	thread, err = strconv.Atoi(first)
	if err != nil || !found || !dotted || len(fraction) != 9 {
		return 0, 0, "", fmt.Errorf("no thread and time: %.80q", line)
	}
	at, err = strconv.ParseInt(seconds+fraction, 10, 64)
	return thread, at, rest, err
}

// end reads how a call ended: the rest of its arguments, its result and, in a line of its own, how long it took.
func (c *Call) end(text string, number int, at int64, resumed bool) error {
	i := strings.LastIndex(text, ") = ")
	if i < 0 { // strace pads short ones
		if i = strings.LastIndex(text, ")"); i < 0 || !strings.HasPrefix(strings.TrimLeft(text[i+1:], " "), "= ") {
			return fmt.Errorf("no end: %.80q", text)
		}
	}
	if err := c.parse(text[:i]); err != nil {
		return err
	}
	_, result, _ := strings.Cut(text[i+1:], "= ")
	if strings.HasPrefix(result, "?") {
		return nil // its process ended in it
	}
	c.Ended, c.EndedAt = number, at
	if !resumed {
		took, err := duration(result)
		if err != nil {
			return err
		}
		c.EndedAt += took
	}
	return c.result(result)
}

// duration reads the time in <> at the end of a line, in nanoseconds.
func duration(result string) (int64, error) {
	i := strings.LastIndex(result, "<")
	digits := strings.Replace(strings.TrimSuffix(result[i+1:], ">"), ".", "", 1)
	took, err := strconv.ParseInt(digits, 10, 64)
	if i < 0 || err != nil {
		return 0, fmt.Errorf("no duration: %.80q", result)
	}
	return took, nil
}

func (c *Call) result(text string) (err error) {
	value, rest, _ := strings.Cut(text, " ")
	number, file, named := strings.Cut(value, "<")
	if named {
		if c.File, err = unhex(strings.TrimSuffix(file, ">")); err != nil {
			return err
		}
	}
	if c.Result, err = strconv.ParseInt(number, 0, 64); err != nil {
		return fmt.Errorf("no result: %.80q", text)
	}
	if c.Result < 0 {
		c.Failed, _, _ = strings.Cut(rest, " ")
	}
	return nil
}
