package server

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/quorate/quorate/internal/access"
)

// identifyEvery is how old the verification of a connection's certificate may be when a call begins, and how
// often a stream's is looked at. So whoever's certificate ends, or whose CA is dropped, is cut off within
// twice that: a minute.
const identifyEvery = 30 * time.Second

// goodbye is what a connection has left once its caller is refused, for the refusals to arrive. Closed, it is opened
// anew, with the certificate that its caller has by now; left open, it would be refused for ever.
const goodbye = time.Second

// caller is the other end of one connection, by the certificate that it has shown there. Its roles can't
// change; whether they still count can.
type caller struct {
	credentials.TLSInfo // what gRPC wants to know of a connection
	server              *Server
	conn                net.Conn

	mu       sync.Mutex
	identity access.Identity
	refused  error
	asOf     time.Time
}

// identify returns who the caller is, by a verification that isn't older than identifyEvery.
func (c *caller) identify() (access.Identity, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.asOf.IsZero() && time.Since(c.asOf) < identifyEvery {
		return c.identity, c.refused
	}
	was := c.identity
	c.identity, c.refused = c.server.cfg.Access.Identify(c.State)
	if c.refused != nil {
		c.identity = access.Identity{}
		if !c.asOf.IsZero() {
			c.server.cfg.Log.Info("certificate is no longer accepted", "caller", was.String(), "error", c.refused)
			c.server.hangUp(c.conn)
		}
	}
	c.asOf = time.Now()
	return c.identity, c.refused
}

// hangUp closes a connection in a moment, or when the server stops.
func (s *Server) hangUp(conn net.Conn) {
	s.streams.Go(func() {
		t := time.NewTimer(goodbye)
		defer t.Stop()
		select {
		case <-t.C:
		case <-s.stopping.Done():
		}
		_ = conn.Close() // whoever is at the other end has been refused
	})
}

// watch looks at the caller for as long as a stream of its is open, and ends ctx when it is refused.
func (c *caller) watch(ctx context.Context, end context.CancelCauseFunc) {
	ticker := time.NewTicker(identifyEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if _, err := c.identify(); err != nil {
				end(unauthenticated(err))
				return
			}
		}
	}
}

// doorkeeper is TLS for gRPC, as a keeper wants it. It tells each connection's handler who called.
type doorkeeper struct {
	credentials.TransportCredentials
	server *Server
}

func (s *Server) newDoorkeeper() *doorkeeper {
	return &doorkeeper{credentials.NewTLS(s.cfg.Access.ServerTLS()), s}
}

// ServerHandshake lets in whoever has a role.
func (d *doorkeeper) ServerHandshake(plain net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, c, err := d.greet(plain)
	if err != nil {
		d.server.metrics.refuse(refusedHandshake)
		d.server.cfg.Log.Debug("handshake failed", "from", plain.RemoteAddr().String(), "error", err)
		return nil, nil, err
	}
	return conn, c, nil
}

func (d *doorkeeper) greet(plain net.Conn) (net.Conn, *caller, error) {
	conn, info, err := d.TransportCredentials.ServerHandshake(plain)
	if err != nil {
		return nil, nil, err
	}
	c := &caller{TLSInfo: info.(credentials.TLSInfo), server: d.server, conn: conn}
	if _, err := c.identify(); err != nil {
		_ = conn.Close() // nobody is there to be told
		return nil, nil, err
	}
	return conn, c, nil
}

// Clone returns a copy, which gRPC may ask for.
func (d *doorkeeper) Clone() credentials.TransportCredentials {
	return &doorkeeper{d.TransportCredentials.Clone(), d.server}
}

// callerOf is the caller of an RPC; nil: nobody has shown a certificate.
func callerOf(ctx context.Context) *caller {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	c, _ := p.AuthInfo.(*caller)
	return c
}
