package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/quorate/quorate/test/checker"
)

// lookEvery is how often the gateway is asked for what it sent again.
const lookEvery = 100 * time.Millisecond

// look is one reading of how many checks the gateway has sent again.
type look struct {
	began, ended int64
	repeats      float64 // -1: it didn't say
}

// notes are the history of one pod. A gateway sends a check again by itself, and what it then answers doesn't say
// whether an earlier send was charged. So a line waits until a later look at the gateway's own count: where that
// didn't move from before the question until after its answer, there was one send.
type notes struct {
	metrics string
	client  *http.Client

	mu      sync.Mutex
	text    bytes.Buffer
	out     *checker.Writer
	looks   []look // the last before the oldest that waits, and all since
	waiting []*checker.Call
	err     error
}

func newNotes(metrics string) *notes {
	n := &notes{metrics: metrics, client: &http.Client{Timeout: 5 * time.Second}}
	n.out = checker.NewWriter(&n.text)
	return n
}

func (n *notes) add(line *checker.Call) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting = append(n.waiting, line)
}

func (n *notes) failed() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err == nil {
		return ""
	}
	return n.err.Error()
}

// watch looks until ctx ends.
func (n *notes) watch(ctx context.Context) {
	for pause(ctx, lookEvery) {
		n.took(n.look())
	}
}

// close writes what still waits.
func (n *notes) close() {
	n.took(n.look())
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, line := range n.waiting {
		n.write(line, true)
	}
	n.waiting = nil
	if err := n.out.Close(); n.err == nil {
		n.err = err
	}
}

func (n *notes) copyTo(w io.Writer) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, err := w.Write(n.text.Bytes())
	return err
}

// took adds a look and writes the lines that were answered before it.
func (n *notes) took(l look) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looks = append(n.looks, l)
	left := n.waiting[:0]
	oldest := l.began
	for _, line := range n.waiting {
		if line.Answered > l.began {
			left = append(left, line)
			oldest = min(oldest, line.Sent)
			continue
		}
		n.write(line, n.resent(line, l))
	}
	clear(n.waiting[len(left):])
	n.waiting = left
	for len(n.looks) > 1 && n.looks[1].ended < oldest-int64(2*askWithin) { // later lines may have been sent before it
		n.looks = n.looks[1:]
	}
}

// resent says whether the gateway may have sent a check again between the last look before the question and l.
func (n *notes) resent(line *checker.Call, l look) bool {
	before := look{repeats: -1}
	for _, b := range n.looks {
		if b.ended < line.Sent {
			before = b
		}
	}
	return before.repeats < 0 || before.repeats != l.repeats
}

func (n *notes) write(line *checker.Call, resent bool) {
	line.Resent = resent && line.Answer != checker.Allow
	if err := n.out.Write(line); err != nil && n.err == nil {
		n.err = fmt.Errorf("history: %w", err)
	}
}

var repeats = regexp.MustCompile(`(?m)^quorate_client_sends_total\{kind="repeat"\} (\S+)$`)

// look reads the gateway's count.
func (n *notes) look() (l look) {
	l = look{began: now(), repeats: -1}
	defer func() { l.ended = now() }()
	r, err := n.client.Get(n.metrics)
	if err != nil {
		return l
	}
	defer func() { _ = r.Body.Close() }() // it was read to its end, or is of no use
	text, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if m := repeats.FindSubmatch(text); err == nil && m != nil {
		if v, err := strconv.ParseFloat(string(m[1]), 64); err == nil {
			l.repeats = v
		}
	}
	return l
}
