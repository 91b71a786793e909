package main

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// maxInFlight is how many checks may be open at once.
const maxInFlight = 1 << 15

// engine asks a cluster over the raw wire contract: a few streams to each node, many checks a message.
type engine struct {
	begin      time.Time
	run        uint64 // the half of decision ids that is this engine's
	routes     *routes
	streams    int // to each node
	perMessage int // checks at most
	talks      []*talk
	conns      []*grpc.ClientConn
	byHome     [][]*talk // of each partition
	pool       bufferPool
	slots      [maxInFlight]slot
	phase      atomic.Pointer[phase]

	sent, received atomic.Uint64 // messages

	mu     sync.Mutex
	broken error
	down   chan struct{} // closed with broken
}

// newEngine connects to the nodes of a cluster.
func newEngine(r *routes, creds credentials.TransportCredentials, streams, perMessage int) (*engine, error) {
	e := &engine{begin: time.Now(), run: rand.Uint64(), routes: r, streams: streams, perMessage: perMessage, down: make(chan struct{})}
	byNode := map[string][]*talk{}
	for _, address := range r.leaders {
		if byNode[address] == nil {
			opened, err := e.connect(address, creds)
			if err != nil {
				return nil, errors.Join(err, e.close())
			}
			byNode[address] = opened
		}
		e.byHome = append(e.byHome, byNode[address])
	}
	return e, nil
}

func (e *engine) connect(address string, creds credentials.TransportCredentials) (opened []*talk, err error) {
	const window = 4 << 20 // so that flow control never waits for a reader who shares its processor
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds), grpc.WithInitialWindowSize(window),
		grpc.WithInitialConnWindowSize(window), grpc.WithReadBufferSize(256<<10), grpc.WithWriteBufferSize(256<<10))
	if err != nil {
		return nil, err
	}
	e.conns = append(e.conns, conn)
	for range e.streams {
		t, err := openTalk(e, len(e.talks), conn)
		if err != nil {
			return nil, err
		}
		e.talks = append(e.talks, t)
		opened = append(opened, t)
	}
	return opened, nil
}

func (e *engine) close() (err error) {
	for _, t := range e.talks {
		t.close()
	}
	for _, c := range e.conns {
		err = errors.Join(err, c.Close())
	}
	return err
}

// brokenBy ends all measuring: what becomes of the checks that are open can't be known.
func (e *engine) brokenBy(err error) {
	if err == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broken == nil {
		e.broken = err
		close(e.down)
	}
}

// tally is what one stream heard in a phase.
type tally struct {
	allows, denies, errors uint64
	failures               map[quotav1.FailureReason]uint64
	message                string
	last                   int64 // when the newest answer came
	hist                   histogram
}

func (y *tally) merge(o *tally) {
	y.allows += o.allows
	y.denies += o.denies
	y.errors += o.errors
	for reason, n := range o.failures {
		if y.failures == nil {
			y.failures = map[quotav1.FailureReason]uint64{}
		}
		y.failures[reason] += n
	}
	if o.message != "" {
		y.message = o.message
	}
	y.last = max(y.last, o.last)
	y.hist.merge(&o.hist)
}

// why says what failed, and how often.
func (y *tally) why() string {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(y.failures)) {
		name := strings.ToLower(strings.TrimPrefix(reason.String(), "FAILURE_REASON_"))
		parts = append(parts, fmt.Sprintf("%d× %s", y.failures[reason], name))
	}
	if y.message != "" {
		parts = append(parts, "the last: "+y.message)
	}
	return strings.Join(parts, ", ")
}

func (y *tally) count(a *reply) {
	switch {
	case a.verdict == allowed && !a.replay:
		y.allows++
	case a.verdict == denied:
		y.denies++
	default: // no check of the bench is repeated, so a replay would be another's allow
		y.errors++
		if y.failures == nil {
			y.failures = map[quotav1.FailureReason]uint64{}
		}
		y.failures[a.failure]++
	}
}

// take counts the answers of a message and lets their callers ask again.
func (e *engine) take(talk int, in *replies, now int64) error {
	p := e.phase.Load()
	y := p.tallies[talk]
	y.last = now
	if in.message != "" {
		y.message, in.message = in.message, ""
	}
	for i := range in.list {
		a := &in.list[i]
		if a.tag >= maxInFlight {
			return fmt.Errorf("an answer has the tag %d, which no check has", a.tag)
		}
		due := e.slots[a.tag].since.Swap(0)
		if due == 0 {
			return fmt.Errorf("an answer has the tag %d, whose check is answered already", a.tag)
		}
		y.hist.add(now - due)
		y.count(a)
	}
	p.answered(talk, in.list, now)
	return nil
}

func (e *engine) isDown() bool {
	select {
	case <-e.down:
		return true
	default:
		return false
	}
}
