// Command etcd asks an etcd cluster for the same admissions as the bench asks of Quorate: a rolling log for each
// key, read linearizably, and written if nobody else has meanwhile. This is how people build a limiter on etcd.
// It prints one line of JSON. It is a module of its own, so that nothing of etcd is among Quorate's dependencies.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	limit  = 3
	window = 60 * time.Second
	// eventLen is an admission in a key's value: when, in microseconds, and its decision id.
	eventLen = 8 + 16
	// mostTries is when a caller gives up against others on the same key.
	mostTries = 100
	timeout   = 5 * time.Second
)

// result is the line that is printed.
type result struct {
	Callers   int     `json:"callers"`
	Seconds   float64 `json:"seconds"`
	Allows    int     `json:"allows"`
	Denies    int     `json:"denies"`
	Errors    int     `json:"errors"`
	Why       string  `json:"why,omitempty"`
	Conflicts int64   `json:"conflicts"`
	PerSecond float64 `json:"allows_per_s"`
	P50       float64 `json:"p50_ms"`
	P95       float64 `json:"p95_ms"`
	P99       float64 `json:"p99_ms"`
}

type limiter struct {
	clients   []*clientv3.Client
	conflicts atomic.Int64
}

var errContended = errors.New("gave up on a contended key")

// check admits a key once, if its log has room. Time is the caller's: etcd offers none.
func (l *limiter) check(ctx context.Context, caller int, key string, id [16]byte) (allowed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c := l.clients[caller%len(l.clients)]
	for range mostTries {
		got, err := c.Get(ctx, key)
		if err != nil {
			return false, err
		}
		var log []byte
		revision := int64(0)
		if len(got.Kvs) == 1 {
			log, revision = got.Kvs[0].Value, got.Kvs[0].ModRevision
		}
		now := time.Now().UnixMicro()
		log, known := live(log, now, id)
		if known {
			return true, nil
		}
		if len(log) >= limit*eventLen {
			return false, nil
		}
		next := append(make([]byte, 0, len(log)+eventLen), log...)
		next = binary.BigEndian.AppendUint64(next, uint64(now))
		next = append(next, id[:]...)
		put, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
			Then(clientv3.OpPut(key, string(next))).Commit()
		if err != nil {
			return false, err
		}
		if put.Succeeded {
			return true, nil
		}
		l.conflicts.Add(1)
	}
	return false, errContended
}

// live is what of a log is still in the window, and whether the id is in it.
func live(log []byte, now int64, id [16]byte) (rest []byte, known bool) {
	from := 0
	for at := 0; at+eventLen <= len(log); at += eventLen {
		if [16]byte(log[at+8:at+eventLen]) == id {
			known = true
		}
		if int64(binary.BigEndian.Uint64(log[at:])) <= now-window.Microseconds() {
			from = at + eventLen
		}
	}
	return log[from:], known
}

// tally is what one caller saw.
type tally struct {
	allows, denies, errors int
	why                    string
	took                   []time.Duration
}

// run lets that many callers ask for that long.
func (l *limiter) run(callers, keys int, seed uint64, length time.Duration) []tally {
	tallies := make([]tally, callers)
	until := time.Now().Add(length)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for y := &tallies[i]; ; {
				from := time.Now()
				if !from.Before(until) {
					return
				}
				var id [16]byte
				binary.BigEndian.PutUint64(id[:], rand.Uint64())
				binary.BigEndian.PutUint64(id[8:], rand.Uint64())
				ok, err := l.check(context.Background(), i, fmt.Sprintf("bench/u%08d", rng.IntN(keys)), id)
				y.count(ok, err, time.Since(from))
			}
		})
	}
	all.Wait()
	return tallies
}

func (y *tally) count(ok bool, err error, took time.Duration) {
	y.took = append(y.took, took)
	switch {
	case err != nil:
		y.errors++
		y.why = err.Error()
	case ok:
		y.allows++
	default:
		y.denies++
	}
}

func main() {
	endpoints := flag.String("endpoints", "", "client addresses of the members, by comma")
	callers := flag.Int("callers", 64, "concurrent callers")
	keys := flag.Int("keys", 1_000_000, "keys")
	seed := flag.Uint64("seed", 1, "of the keys")
	warm := flag.Duration("warm", time.Second, "how long to ask before measuring")
	length := flag.Duration("seconds", 4*time.Second, "how long to measure")
	flag.Parse()
	if err := measure(strings.Split(*endpoints, ","), *callers, *keys, *seed, *warm, *length); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}

func measure(endpoints []string, callers, keys int, seed uint64, warm, length time.Duration) (err error) {
	l := &limiter{}
	for range 2 { // one connection to each member is a bottleneck of its own
		c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: timeout})
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }() // all was answered
		l.clients = append(l.clients, c)
	}
	l.run(callers, keys, seed+1, warm)
	l.conflicts.Store(0)
	from := time.Now()
	tallies := l.run(callers, keys, seed, length)
	return json.NewEncoder(os.Stdout).Encode(sum(tallies, time.Since(from), l.conflicts.Load()))
}

func sum(tallies []tally, length time.Duration, conflicts int64) result {
	r := result{Callers: len(tallies), Seconds: length.Seconds(), Conflicts: conflicts}
	var took []time.Duration
	for _, y := range tallies {
		r.Allows, r.Denies, r.Errors = r.Allows+y.allows, r.Denies+y.denies, r.Errors+y.errors
		if y.why != "" {
			r.Why = y.why
		}
		took = append(took, y.took...)
	}
	slices.Sort(took)
	r.PerSecond = float64(r.Allows) / r.Seconds
	r.P50, r.P95, r.P99 = quantile(took, 0.5), quantile(took, 0.95), quantile(took, 0.99)
	return r
}

func quantile(sorted []time.Duration, share float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]) / 1e6
}
