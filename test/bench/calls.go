package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/keyspace"
)

// asker asks one check and waits for its decision. What is neither an allow nor a denial is an error.
type asker func(ctx context.Context, key string, id []byte) (verdict, error)

// calls is a closed loop of callers of which each asks one check at a time, as applications do. Each has an asker of
// its own.
func calls(askers []asker, w workload, length time.Duration) *measured {
	tallies := make([]tally, len(askers))
	begin := time.Now()
	var all sync.WaitGroup
	for i, ask := range askers {
		all.Go(func() { call(ask, w, uint64(i), begin, length, &tallies[i]) })
	}
	all.Wait()
	m := &measured{seconds: time.Since(begin).Seconds()}
	for i := range tallies {
		m.merge(&tallies[i])
	}
	return m
}

func call(ask asker, w workload, caller uint64, begin time.Time, length time.Duration, y *tally) {
	next, text := w.draw(caller), make([]byte, valueLen)
	g := ids{run: rand.Uint64(), next: caller << 40}
	for {
		from := time.Since(begin)
		if from >= length {
			return
		}
		putKey(text, w.family, next())
		var id [idLen]byte
		g.put(&id)
		ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
		v, err := ask(ctx, string(text), id[:])
		cancel()
		y.hist.add(int64(time.Since(begin) - from))
		switch {
		case err == nil && v == allowed:
			y.allows++
		case err == nil && v == denied:
			y.denies++
		default:
			y.errors++
			y.message = fmt.Sprint(err)
		}
	}
}

// verdictOf reads an answer as a caller must: what isn't known is no allow.
func verdictOf(a *quotav1.Answer) (verdict, error) {
	switch {
	case a.GetReplayed():
		return failed, fmt.Errorf("the answer is another check's")
	case a.GetDecision() == quotav1.Decision_DECISION_ALLOW:
		return allowed, nil
	case a.GetDecision() == quotav1.Decision_DECISION_DENY:
		return denied, nil
	}
	return failed, fmt.Errorf("the answer says %v", a.GetDecision())
}

func descriptorOf(entry, key string) []*quotav1.Descriptor {
	return []*quotav1.Descriptor{{Entries: []*quotav1.Entry{{Name: entry, Value: []byte(key)}}}}
}

// unary asks by Check, each caller at the leader of its key.
func (s *session) unary(w workload, callers int) []asker {
	r := s.engine.routes
	stubs := map[string]quotav1.QuotaClient{}
	for _, c := range s.engine.conns {
		stubs[c.Target()] = quotav1.NewQuotaClient(c)
	}
	names := []string{w.entry}
	ask := func(ctx context.Context, key string, id []byte) (verdict, error) {
		home := uint32(0)
		if len(r.leaders) > 1 {
			home = uint32(r.slots[r.seed.Slot(domain, keyspace.Descriptor{{Name: w.entry, Value: key}}, names)])
		}
		m, err := stubs[r.leaders[home]].Check(ctx, &quotav1.CheckRequest{
			Domain: domain, Descriptors: descriptorOf(w.entry, key), DecisionId: id, Partition: &home,
		}, grpc.WaitForReady(true))
		if err != nil {
			return failed, err
		}
		return verdictOf(m.GetAnswer())
	}
	return times(ask, callers)
}

// application asks by the client that applications import.
func (s *session) application(w workload, callers int) ([]asker, func(), error) {
	cfg := client.Config{Addresses: strings.Split(s.addresses(), ","), MaxInFlight: 2 * callers}
	if s.tls {
		t, err := s.clientTLS()
		if err != nil {
			return nil, nil, err
		}
		cfg.TLS = t
	}
	c, err := client.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	ask := func(ctx context.Context, key string, id []byte) (verdict, error) {
		a, err := c.Check(ctx, &quotav1.CheckRequest{Domain: domain, Descriptors: descriptorOf(w.entry, key), DecisionId: id})
		if err != nil {
			return failed, err
		}
		return verdictOf(a)
	}
	return times(ask, callers), c.Close, nil
}

func times(ask asker, n int) []asker {
	all := make([]asker, n)
	for i := range all {
		all[i] = ask
	}
	return all
}

// overHTTP asks a gateway, each caller over a connection of its own. It writes requests by hand, since the
// standard client costs more than the gateway that it would measure.
func overHTTP(address string, w workload, callers int) (askers []asker, hangUp func(), err error) {
	var conns []net.Conn
	hangUp = func() {
		for _, c := range conns {
			_ = c.Close() // all was answered
		}
	}
	for range callers {
		c, err := net.Dial("tcp", address)
		if err != nil {
			hangUp()
			return nil, nil, err
		}
		conns = append(conns, c)
		askers = append(askers, (&httpCaller{conn: c, read: bufio.NewReader(c), entry: w.entry}).ask)
	}
	return askers, hangUp, nil
}

type httpCaller struct {
	conn  net.Conn
	read  *bufio.Reader
	entry string
}

func (h *httpCaller) ask(ctx context.Context, key string, _ []byte) (verdict, error) {
	deadline, _ := ctx.Deadline()
	if err := h.conn.SetDeadline(deadline); err != nil {
		return failed, err
	}
	if _, err := fmt.Fprintf(h.conn, "GET /check?%s=%s HTTP/1.1\r\nHost: gateway\r\n\r\n", h.entry, key); err != nil {
		return failed, err
	}
	response, err := http.ReadResponse(h.read, nil)
	if err != nil {
		return failed, err
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return failed, err
	}
	switch response.StatusCode {
	case http.StatusOK:
		return allowed, nil
	case http.StatusTooManyRequests:
		return denied, nil
	}
	return failed, fmt.Errorf("%s: %s", response.Status, body)
}
