package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/test/checker"
)

// load is the applications that ask, each beside a gateway of its own, and what is written down of them.
type load struct {
	*kubernetes
	askers []string // pods
	sets   []checker.Line
	marks  []checker.Line
}

// amounts are those of the policy that the load is held to.
type amounts struct{ burst, minute uint64 }

// usual lets through about half of what is asked for.
func usual() amounts { return amounts{burst: 10, minute: 40} }

func (a amounts) text() string {
	return fmt.Sprintf(`apiVersion: quorate.dev/v1alpha1
kind: RateLimitPolicy
metadata: {name: load}
spec:
  match: {kind: load}
  key: [principal]
  limits:
  - {name: burst, rollingWindow: {limit: %d, window: 2s}}
  - {name: minute, rollingWindow: {limit: %d, window: 60s}}
`, a.burst, a.minute)
}

func (a amounts) limits() []checker.Limit {
	one := func(name string, most uint64, window time.Duration) checker.Limit {
		return checker.Limit{Quota: namespace + "/load", Name: name, Algorithm: checker.Rolling, Max: most, Window: int64(window)}
	}
	return []checker.Limit{one("burst", a.burst, 2*time.Second), one("minute", a.minute, time.Minute)}
}

// now is the monotonic clock of the machine that all nodes are on.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // there is no Linux without it
	}
	return ts.Nano()
}

// apply has the load held to amounts, and returns once they are enforced everywhere.
func (l *load) apply(t *testing.T, a amounts) {
	t.Helper()
	line := &checker.Policies{Sent: now(), Outcome: checker.Undecided, Limits: a.limits()}
	l.sets = append(l.sets, line)
	l.kubernetes.apply(t, a.text())
	p := l.programmed(t, "load")
	_, number, _ := strings.Cut(p.Status.Enforced.Version, ".")
	set, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		t.Fatalf("policy load is enforced in version %q: %v", p.Status.Enforced.Version, err)
	}
	line.Set, line.Outcome, line.Answered = set, checker.Applied, now()
}

// mark notes what is done, for people who read the history.
func (l *load) mark(what string) {
	l.marks = append(l.marks, &checker.Mark{At: now(), Name: what, Partition: -1})
}

// figures are what callers saw, as askers count it.
type figures struct {
	Allows, Denials, Unavailable, Unknown, Unmatched int

	Longest time.Duration
	Failed  string
}

// seen sums up what all callers saw until now.
func (l *load) seen(t *testing.T) (sum figures) {
	t.Helper()
	for _, name := range l.askers {
		one := l.tell(t, name, "figures")
		sum.Allows += one.Allows
		sum.Denials += one.Denials
		sum.Unavailable += one.Unavailable
		sum.Unknown += one.Unknown
		sum.Unmatched += one.Unmatched
		sum.Longest = max(sum.Longest, one.Longest)
		if one.Failed != "" {
			sum.Failed = name + ": " + one.Failed
		}
	}
	if sum.Failed != "" {
		t.Errorf("a caller saw what must never be: %s", sum.Failed)
	}
	return sum
}

// tell tells an asker something.
func (l *load) tell(t *testing.T, name, what string) (f figures) {
	t.Helper()
	text, err := l.ask(name, askerPort, what)
	if err == nil {
		err = json.Unmarshal([]byte(text), &f)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// goesOn waits until callers have been allowed and denied again and again, after now, and returns what they saw.
func (l *load) goesOn(t *testing.T) figures {
	t.Helper()
	const more = 200
	before := l.seen(t)
	var after figures
	eventually(t, fmt.Sprintf("%d allows and denials more", more), func() string {
		after = l.seen(t)
		if after.Allows-before.Allows < more || after.Denials-before.Denials < more {
			return fmt.Sprintf("before %+v, now %+v", before, after)
		}
		return ""
	})
	return after
}

// beginLoad lets all applications ask.
func beginLoad(t *testing.T, r *run) {
	r.load.apply(t, usual())
	for _, name := range r.load.askers {
		r.load.tell(t, name, "begin")
	}
	r.load.goesOn(t)
}

// judge ends the load and has the checker read what it saw.
func judge(t *testing.T, r *run) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	if folder := os.Getenv("HISTORIES"); folder != "" {
		path = filepath.Join(folder, filepath.Base(t.Name())+".jsonl")
	}
	w, err := checker.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(append(r.load.sets, r.load.marks...)...); err != nil {
		t.Fatal(err)
	}
	for _, name := range r.load.askers {
		f := r.load.tell(t, name, "end")
		t.Logf("%s: %+v", name, f)
		if f.Failed != "" {
			t.Errorf("%s saw what must never be: %s", name, f.Failed)
		}
		text, err := r.ask(name, askerPort, "history")
		if err != nil {
			t.Fatal(err)
		}
		copyHistory(t, w, text)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	verdict, err := checker.CheckFile(path, checker.Options{Fenced: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the checker says\n%s", verdict)
	if !verdict.OK() {
		t.Error("promises were broken, or couldn't be judged")
	}
	if n := verdict.Counts; n[checker.CountAllows] < 1000 || n[checker.CountDenials] < 1000 {
		t.Errorf("the history shows %d allows and %d denials that could be judged: too few to prove anything",
			n[checker.CountAllows], n[checker.CountDenials])
	}
}

// copyHistory adds an asker's lines.
func copyHistory(t *testing.T, w *checker.Writer, text string) {
	t.Helper()
	in := checker.NewReader(strings.NewReader(text))
	for {
		line, err := in.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			err = w.Write(line)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
