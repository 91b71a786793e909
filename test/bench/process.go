package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience bounds every wait for a process.
const patience = 60 * time.Second

// process is a program that the bench has started, and ends.
type process struct {
	name   string
	cmd    *exec.Cmd
	stderr tail
	ended  chan struct{} // closed when it has ended and its output is read

	mu    sync.Mutex
	lines []string
}

// tail is the end of what a process writes.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write keeps the end of what was written.
func (t *tail) Write(b []byte) (int, error) {
	const enough = 4 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-enough):]
	return len(b), nil
}

// String is that end.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.text))
}

// launch starts a program. Should the bench be killed, the kernel kills it too.
func launch(name, path string, env []string, args ...string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(path, args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go p.watch(stdout)
	return p, nil
}

func (p *process) watch(stdout io.Reader) {
	defer close(p.ended)
	for s := bufio.NewScanner(stdout); s.Scan(); {
		p.mu.Lock()
		p.lines = append(p.lines, s.Text())
		p.mu.Unlock()
	}
	_ = p.cmd.Wait() // how it ended is in its state
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// find is what follows the prefix in the newest line that begins so.
func (p *process) find(prefix string) (rest string, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if after, ok := strings.CutPrefix(l, prefix); ok {
			rest, found = after, true
		}
	}
	return rest, found
}

// line waits for a line that begins so, and returns what follows.
func (p *process) line(prefix string) (rest string, err error) {
	err = eventually("the line "+prefix+" of "+p.name, func() (found bool, err error) {
		if rest, found = p.find(prefix); found {
			return true, nil
		}
		select {
		case <-p.ended:
			return false, fmt.Errorf("%s ended: %v\n%s", p.name, p.cmd.ProcessState, p.stderr.String())
		default:
			return false, nil
		}
	})
	return rest, err
}

// end asks the process to end, and kills it if it doesn't.
func (p *process) end(signal os.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", p.name, err)
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(patience / 2):
	}
	_ = p.cmd.Process.Kill() // it may have ended just now
	<-p.ended
	return fmt.Errorf("%s had to be killed", p.name)
}

// run runs a program to its end and returns what it writes.
func run(path string, args ...string) (string, error) {
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), fmt.Errorf("%s %s: %w\n%s", filepath.Base(path), strings.Join(args, " "), err, bytes.TrimSpace(exit.Stderr))
	}
	return string(out), err
}

// eventually looks until done says so.
func eventually(what string, done func() (bool, error)) error {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("waited %v for %s", patience, what)
		}
	}
}
