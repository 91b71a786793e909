package main

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/quorate/quorate/internal/node"
	"github.com/quorate/quorate/internal/server"
)

// station is a node with its server: what `run` runs one of, and `dev` three.
type station struct {
	*node.Node
	server *server.Server
}

// openStation opens a node and serves it. The listeners are the station's, whatever becomes of it; ops may be nil.
func openStation(cfg node.Config, s server.Config, grpc, ops net.Listener) (*station, error) {
	n, err := node.Open(cfg)
	if err != nil {
		return nil, errors.Join(err, closeAll(grpc, ops))
	}
	s.Decider, s.Cluster, s.Member, s.Domains, s.Monotonic, s.Ready, s.Alive = n, n, n, n.Domains, n.Monotonic, n.Ready, n.Alive
	st := &station{Node: n, server: server.New(s)}
	st.server.Start(server.Listeners{GRPC: grpc, Ops: ops})
	return st, nil
}

const (
	// stopWithin is how long a stop waits for checks in flight.
	stopWithin = 10 * time.Second
	// failedWithin is how long a node that can't go on tries to close in order.
	failedWithin = 3 * time.Second
)

// stop hands over what the node leads, so that askers are sent on while they are still answered, then closes what
// answers, then what decides.
func (st *station) stop() error {
	st.HandOver()
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	return errors.Join(st.server.Stop(ctx), st.Close())
}

// closeAll closes listeners that nobody serves.
func closeAll(listeners ...net.Listener) (err error) {
	for _, l := range listeners {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
	}
	return err
}

// closeWithin is how long closing may take. A disk that hangs answers nobody, least of all Close, and the
// end of the process is what it takes for the others to elect.
func closeWithin(failure error) time.Duration {
	if failure != nil {
		return failedWithin
	}
	return 2 * stopWithin
}

var errStuck = errors.New("not everything could be closed in time; what was acknowledged is on disk")

// within gives up on what doesn't return in time. It is left behind: the process is about to end.
func within(bound time.Duration, closing func() error) error {
	done := make(chan error, 1)
	go func() { done <- closing() }()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return errStuck
	}
}
