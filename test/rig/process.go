package rig

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is one of the programs, running.
type Process struct {
	Stderr Output // what it writes there

	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended and all of its output is read
	err   error         // of Wait, once ended

	mu    sync.Mutex
	lines []string
}

// Output is what a process writes, readable at any time.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String is all of it so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// End is the last of it, for people.
func (o *Output) End() string {
	const enough = 8 << 10
	text := o.String()
	return text[max(0, len(text)-enough):]
}

// Launch starts a program. It ends with the test at the latest.
func (p Programs) Launch(t testing.TB, program string, args ...string) *Process {
	t.Helper()
	return Start(t, append([]string{p.path(program)}, args...)...)
}

// Start starts a command. It ends with the test at the latest.
func Start(t testing.TB, command ...string) *Process {
	t.Helper()
	p := &Process{cmd: exec.Command(command[0], command[1:]...), ended: make(chan struct{})}
	p.cmd.Stderr = &p.Stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.watch(stdout)
	t.Cleanup(func() {
		p.Kill(t)
		if t.Failed() {
			t.Logf("%q said\n%s\n%s", command, strings.Join(p.Said(), "\n"), p.Stderr.End())
		}
	})
	return p
}

func (p *Process) watch(stdout io.Reader) {
	for s := bufio.NewScanner(stdout); s.Scan(); {
		p.mu.Lock()
		p.lines = append(p.lines, s.Text())
		p.mu.Unlock()
	}
	p.err = p.cmd.Wait()
	close(p.ended)
}

// PID is its process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Said are the lines that it has written to stdout so far.
func (p *Process) Said() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lines...)
}

// Line waits for a line that begins so, and returns what follows.
func (p *Process) Line(t testing.TB, prefix string) (rest string) {
	t.Helper()
	Eventually(t, "the line "+prefix, func() bool {
		for _, l := range p.Said() {
			if after, ok := strings.CutPrefix(l, prefix); ok {
				rest = after
				return true
			}
		}
		if !p.Running() {
			t.Fatalf("ended without the line %q: %v\n%s", prefix, p.err, p.Stderr.String())
		}
		return false
	})
	return rest
}

// Ready waits until it says so.
func (p *Process) Ready(t testing.TB) *Process {
	t.Helper()
	p.Line(t, "ready")
	return p
}

// Running reports whether it has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Kill ends it with no warning.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	p.Wait(t)
}

// Signal sends it a signal.
func (p *Process) Signal(t testing.TB, signal os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// Terminate asks it to end and returns its exit status.
func (p *Process) Terminate(t testing.TB, signal os.Signal) int {
	t.Helper()
	p.Signal(t, signal)
	return p.Wait(t)
}

// Wait waits for the end and returns the exit status, -1 after a signal.
func (p *Process) Wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(Patience):
		t.Fatal("the process doesn't end")
		return 0
	}
}

// Freeze stops it where it stands, and Thaw lets it go on.
func (p *Process) Freeze(t testing.TB) {
	t.Helper()
	p.Signal(t, syscall.SIGSTOP)
}

// Thaw ends a [Process.Freeze].
func (p *Process) Thaw(t testing.TB) {
	t.Helper()
	p.Signal(t, syscall.SIGCONT)
}
