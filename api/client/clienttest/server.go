package clienttest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/policy/file"
)

// inMemory is the address of the cluster for those who reach it in memory. Nothing listens there.
const inMemory = "127.0.0.1:1"

// pipeBytes is how much may be under way in memory on one side of a connection.
const pipeBytes = 1 << 20

// Config is a cluster to start.
type Config struct {
	// Policies is the text of a policy file, YAML or JSON.
	Policies string
	// Partitions is how many there are, at most 4,096; 0 is 1. A check whose keys live in several of them is
	// decided in two rounds, as in a real cluster.
	Partitions int
}

// Server is a cluster in memory. It is safe for concurrent use.
type Server struct {
	clock  *clock
	seed   keyspace.Seed
	memory *bufconn.Listener
	grpc   *grpc.Server
	served sync.WaitGroup

	mu      sync.Mutex
	cells   []*cell
	set     policy.Set
	version fsm.Version
	news    chan struct{} // closed and made anew with each change that a watch tells of
	faults  []fault       // of the next checks
	drop    chan struct{} // closed and made anew to break the check streams
	closed  bool
}

// fault is what becomes of a check instead of an answer.
type fault struct {
	reason quotav1.FailureReason
	lose   bool // it is decided, and the answer is lost
}

// Start starts a cluster. The caller closes it.
func Start(cfg Config) (*Server, error) {
	partitions := max(1, cfg.Partitions)
	if partitions > keyspace.Slots {
		return nil, fmt.Errorf("%d partitions, at most %d are possible", partitions, keyspace.Slots)
	}
	s := &Server{
		clock: newClock(), seed: keyspace.Seed([]byte("a seed for tests")), memory: bufconn.Listen(pipeBytes),
		news: make(chan struct{}), drop: make(chan struct{}),
	}
	for p := range partitions {
		s.cells = append(s.cells, newCell(s.seed, p, partitions))
	}
	if err := s.SetPolicies(cfg.Policies); err != nil {
		return nil, err
	}
	s.grpc = grpc.NewServer(grpc.WaitForHandlers(true))
	quotav1.RegisterQuotaServer(s.grpc, &quota{server: s})
	quotav1.RegisterRoutingServer(s.grpc, &routing{server: s})
	s.serve(s.memory)
	return s, nil
}

func (s *Server) serve(l net.Listener) {
	s.served.Go(func() { _ = s.grpc.Serve(l) }) // it ends with Close
}

// Close ends all connections, and forgets everything.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.grpc.Stop()
	s.served.Wait()
}

// ClientConfig is that of a client which reaches the cluster in memory and goes by its clock. Change in it
// what a test needs otherwise.
func (s *Server) ClientConfig() client.Config {
	return client.Config{
		Addresses: []string{inMemory}, Now: s.Now, After: s.clock.after,
		Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return s.memory.DialContext(ctx) },
	}
}

// Listen lets clients of other processes, and those made with [client.Dial], reach the cluster over TCP, and
// returns its address on this machine.
func (s *Server) Listen() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", errors.Join(errors.New("the server is closed"), l.Close())
	}
	s.serve(l)
	return l.Addr().String(), nil
}

// Now reads the cluster's clock, in nanoseconds from its start: the decision time of all partitions.
func (s *Server) Now() int64 { return s.clock.read() }

// Advance moves the cluster's time on by d, which is not negative, and wakes whoever waits on its clock.
// Clients hear of it as of all news, a moment later. Until then, after more than 10 s, what they send is taken
// for a late copy, as in a cluster: they ask once more under a new id, but not after an unknown outcome.
func (s *Server) Advance(d time.Duration) {
	if d < 0 {
		panic("clienttest: time does not go back")
	}
	s.clock.advance(d, func(now int64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range s.cells {
			c.tick(now)
		}
		s.tell()
	})
}

// AwaitWaiting waits until n calls of [client.Client.Wait] wait for time to pass, so that a test can advance
// it. It returns the context's error if that ends first.
func (s *Server) AwaitWaiting(ctx context.Context, n int) error { return s.clock.await(ctx, n) }

// SetPolicies puts other policies in force, given as the text of a policy file, and keeps usage as a cluster
// does. It refuses what a cluster refuses. Clients hear of the new set as of all news, a moment later: until
// then they may give a denial again that it would lift.
func (s *Server) SetPolicies(text string) error {
	set, err := file.Read("policies", strings.NewReader(text))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if problems := s.set.ChangeTo(set, s.cells[0].machine.Tombstones()); len(problems) > 0 {
		return problems
	}
	v := fsm.Version{Epoch: epoch, Number: s.version.Number + 1}
	for _, c := range s.cells {
		if err := c.adopt(s.Now(), v, set.Canonical()); err != nil {
			return err
		}
	}
	s.set, s.version = set, v
	s.tell()
	return nil
}

// FailNext answers the next check, of whichever client, with a failure in the place of a decision. Each call
// adds one. Nothing is decided: with FAILURE_REASON_OUTCOME_UNKNOWN as well the check was not charged.
func (s *Server) FailNext(reason quotav1.FailureReason) { s.add(fault{reason: reason}) }

// LoseNext decides the next check and loses the answer: its stream breaks. Each call adds one.
func (s *Server) LoseNext() { s.add(fault{lose: true}) }

func (s *Server) add(f fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, f)
}

// DropStreams breaks all check streams. Clients open new ones with their next checks.
func (s *Server) DropStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.drop)
	s.drop = make(chan struct{})
}

// tell wakes the watches; the lock is held.
func (s *Server) tell() {
	close(s.news)
	s.news = make(chan struct{})
}
