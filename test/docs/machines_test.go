package docs

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/test/fence"
)

// patience bounds every wait.
const patience = 40 * time.Second

// machines are those of docs/running.md: three nodes, a gateway's, and that of the person at work. Each is a
// folder here, and what the page calls an address is a port on this machine.
type machines struct {
	t        *testing.T
	bin, dir string
	places   map[string]string // addresses of the page → addresses here
	defined  string            // variables of the person's shell
	running  map[string]*process
}

// here is the folder of the person at work.
const here = "here"

var nodeNames = []string{"n1", "n2", "n3"}

func newMachines(t *testing.T) *machines {
	t.Helper()
	needCurl(t)
	m := &machines{t: t, bin: binaries(t), dir: t.TempDir(), places: map[string]string{}, running: map[string]*process{}}
	for _, name := range append(nodeNames, here, "api") {
		m.must(os.Mkdir(filepath.Join(m.dir, name), 0o700))
	}
	var names []string
	for _, n := range nodeNames {
		names = append(names, n+".example:7001", n+".example:8081", n+".example:8082")
	}
	names = append(names, "127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:8082")
	for i, address := range freeAddresses(len(names)) {
		m.places[names[i]] = address
	}
	t.Cleanup(func() {
		for _, name := range slices.Sorted(maps.Keys(m.running)) {
			m.stop(name)
		}
	})
	return m
}

// ports hands out each port once.
var ports atomic.Int32

// freeAddresses are some of this process's own, which no other process and no connection gets by chance: a node that
// starts again finds its address free.
func freeAddresses(n int) (all []string) {
	const first = 10_000 // below those that connections get
	pid := os.Getpid()
	for range n {
		all = append(all, fmt.Sprintf("127.%d.%d.%d:%d", 1+pid>>16&0x7f, pid>>8&0xff, pid&0xff, first+ports.Add(1)))
	}
	return all
}

func (m *machines) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machines) path(machine string, names ...string) string {
	return filepath.Join(append([]string{m.dir, machine}, names...)...)
}

// local puts the addresses of this machine for those of the page.
func (m *machines) local(text string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(m.places)) {
		pairs = append(pairs, name, m.places[name])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// shown is the way back.
func (m *machines) shown(text string) string {
	for name, address := range m.places {
		text = strings.ReplaceAll(text, address, name)
	}
	return text
}

// copy brings a file of the person's to a machine, whole.
func (m *machines) copy(from, machine, name string) {
	m.t.Helper()
	text, err := os.ReadFile(m.path(here, from))
	m.must(err)
	m.write(machine, name, text)
}

// write puts a file in place in one step, as the page says.
func (m *machines) write(machine, name string, text []byte) {
	m.t.Helper()
	m.must(os.WriteFile(m.path(machine, name+".new"), text, 0o600))
	m.must(os.Rename(m.path(machine, name+".new"), m.path(machine, name)))
}

// command is one that the page shows behind a prompt, and what it prints.
type command struct {
	machine, text, prints string
	line                  int
}

var prompt = regexp.MustCompile(`^(\w*)\$ (.*)$`)

// commandsOf reads the transcripts below a heading.
func commandsOf(t *testing.T, page, heading string) (all []command) {
	t.Helper()
	for _, b := range fence.Below(t, filepath.Join(root, page), heading) {
		if b.Language != "console" {
			continue
		}
		for i, line := range strings.Split(strings.TrimSuffix(b.Text, "\n"), "\n") {
			if p := prompt.FindStringSubmatch(line); p != nil {
				all = append(all, command{machine: p[1], text: p[2], line: b.Line + i + 1})
			} else {
				all[len(all)-1].prints += line + "\n"
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s: no commands below %q", page, heading)
	}
	return all
}

// play runs commands that end, and compares what they print. What is asked of processes that are on their way is
// asked again until it is as shown.
func (m *machines) play(page, heading string) {
	m.t.Helper()
	for _, c := range commandsOf(m.t, page, heading) {
		m.playOne(page, c)
	}
}

func (m *machines) playOne(page string, c command) {
	m.t.Helper()
	if assignment.MatchString(c.text) {
		m.defined += m.local(c.text) + "\n"
		return
	}
	var got string
	var err error
	for end := time.Now().Add(patience); ; {
		got, err = m.run(c.machine, c.text)
		if alike(c.prints, got) {
			return
		}
		if !time.Now().Before(end) || !repeatable.MatchString(c.text) {
			break
		}
		<-time.After(100 * time.Millisecond)
	}
	m.t.Fatalf("%s:%d: %s\nprints\n%s\nshown is\n%s\n(%v)\n%s", page, c.line, c.text, got, c.prints, err, m.logs())
}

var (
	assignment = regexp.MustCompile(`^[a-z]+="`)
	repeatable = regexp.MustCompile(`^(curl|quotactl status|quotactl policies list) `)
)

// run runs a command on a machine and returns what it prints, as the page would show it.
func (m *machines) run(machine, text string) (string, error) {
	if machine == "" {
		machine = here
	}
	cmd := exec.Command("sh", "-c", m.defined+m.local(text))
	cmd.Dir = m.path(machine)
	cmd.Env = append(os.Environ(), "PATH="+m.bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return m.shown(string(out)), err
}

// alike compares what a page shows with what was printed. Ids, dates, numbers and the widths of columns differ
// from time to time; words, names and lines don't.
func alike(shown, printed string) bool { return shape(shown) == shape(printed) }

var changingShapes = []struct {
	pattern *regexp.Regexp
	stands  string
}{
	{regexp.MustCompile(`\b[0-9a-f]{12,}\b`), "ID"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d\b`), "DATE"},
	{regexp.MustCompile(`\b\d[\w.+]*`), "N"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

func shape(text string) string {
	for _, c := range changingShapes {
		text = c.pattern.ReplaceAllString(text, c.stands)
	}
	return strings.TrimSpace(text)
}

// process is one that a machine runs.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}

	mu       sync.Mutex
	out, err bytes.Buffer
}

// start runs a command on a machine until it is stopped. It replaces the shell, so that signals reach it.
func (m *machines) start(name, machine, text string) *process {
	m.t.Helper()
	p := &process{ended: make(chan struct{})}
	p.cmd = exec.Command("sh", "-c", "exec "+m.local(text))
	p.cmd.Dir = m.path(machine)
	p.cmd.Env = append(os.Environ(), "PATH="+m.bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	out, err := p.cmd.StdoutPipe()
	m.must(err)
	errs, err := p.cmd.StderrPipe()
	m.must(err)
	m.must(p.cmd.Start())
	m.running[name] = p
	var reading sync.WaitGroup
	reading.Go(func() { p.keep(&p.out, bufio.NewScanner(out)) })
	reading.Go(func() { p.keep(&p.err, bufio.NewScanner(errs)) })
	go func() {
		reading.Wait()
		_ = p.cmd.Wait() // stop looks at the status
		close(p.ended)
	}()
	return p
}

func (p *process) keep(in *bytes.Buffer, lines *bufio.Scanner) {
	for lines.Scan() {
		p.mu.Lock()
		in.WriteString(lines.Text() + "\n")
		p.mu.Unlock()
	}
}

func (p *process) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// awaits waits until what the process has printed is as it should be.
func (m *machines) awaits(name, what string, done func(printed string) bool) {
	m.t.Helper()
	p := m.running[name]
	for end := time.After(patience); !done(p.printed()); {
		select {
		case <-p.ended:
			if done(p.printed()) {
				return
			}
			m.t.Fatalf("%s ended before %s\n%s", name, what, m.logs())
		case <-end:
			m.t.Fatalf("waited %v until %s: %s\n%s", patience, name, what, m.logs())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// lastLine says whether the last line is this one.
func lastLine(line string) func(string) bool {
	return func(printed string) bool { return strings.HasSuffix(printed, "\n"+line+"\n") }
}

// stop ends a process as a supervisor does.
func (m *machines) stop(name string) {
	m.t.Helper()
	p := m.running[name]
	delete(m.running, name)
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
		if !p.cmd.ProcessState.Success() {
			m.t.Errorf("%s ended: %v\n%s", name, p.cmd.ProcessState, p.err.String())
		}
	case <-time.After(patience):
		m.t.Errorf("%s does not stop within %v", name, patience)
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// logs are what all processes have printed.
func (m *machines) logs() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(m.running)) {
		p := m.running[name]
		p.mu.Lock()
		fmt.Fprintf(&b, "--- %s\n%s%s", name, p.out.String(), p.err.String())
		p.mu.Unlock()
	}
	return b.String()
}
