package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/internal/access"
)

// identifyEvery is how long what a connection stands on counts before it is verified again: a certificate that has
// expired, or whose CA was dropped, is out that soon.
const identifyEvery = time.Minute

// goodbye is what a connection has left once its caller is refused, for the refusals to arrive. Closed, it is opened
// anew, with the certificate that its caller has by now; left open, it would be refused for ever.
const goodbye = time.Second

// caller is who is at the other end of a connection.
type caller struct {
	server *Server
	state  tls.ConnectionState
	conn   net.Conn

	mu       sync.Mutex
	identity access.Identity
	err      error
	verified time.Time
}

// identify says who the caller is, by certificates that are good now, or were within the last minute.
func (c *caller) identify() (access.Identity, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.verified.IsZero() || time.Since(c.verified) >= identifyEvery {
		first, before := c.verified.IsZero(), c.err
		c.identity, c.err = c.server.cfg.Access.Identify(c.state)
		c.verified = time.Now()
		if c.err != nil && before == nil && !first {
			c.server.hangUp(c.conn)
		}
	}
	return c.identity, c.err
}

// hangUp closes a connection in a moment, or when the server stops.
func (s *Server) hangUp(conn net.Conn) {
	s.streams.Go(func() {
		t := time.NewTimer(goodbye)
		defer t.Stop()
		select {
		case <-t.C:
		case <-s.stopping:
		}
		_ = conn.Close() // whoever is at the other end has been refused
	})
}

// callerInfo is what gRPC knows of a connection, and the caller.
type callerInfo struct {
	credentials.TLSInfo
	caller *caller
}

// doorkeeper makes connections safe, and says whom they are with.
type doorkeeper struct {
	credentials.TransportCredentials
	server *Server
}

func (s *Server) newDoorkeeper() *doorkeeper {
	return &doorkeeper{credentials.NewTLS(s.cfg.Access.ServerTLS()), s}
}

// ServerHandshake refuses whoever is nobody.
func (d *doorkeeper) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	safe, info, err := d.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		return nil, nil, err
	}
	t, ok := info.(credentials.TLSInfo)
	if !ok {
		return nil, nil, errors.Join(errors.New("handshake: not TLS"), safe.Close())
	}
	c := &caller{server: d.server, state: t.State, conn: safe}
	if _, err := c.identify(); err != nil {
		return nil, nil, errors.Join(err, safe.Close())
	}
	return safe, callerInfo{t, c}, nil
}

// Clone returns a doorkeeper of the same server.
func (d *doorkeeper) Clone() credentials.TransportCredentials {
	return &doorkeeper{d.TransportCredentials.Clone(), d.server}
}

// identityOf says who makes a call. Without certificates only this machine is listened to.
func (s *Server) identityOf(ctx context.Context) (access.Identity, error) {
	if s.cfg.Access == nil {
		return access.Loopback(), nil
	}
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(callerInfo); ok {
			id, err := info.caller.identify()
			if err == nil {
				return id, nil
			}
			s.metrics.refused.WithLabelValues(frontGRPC, refusedCaller).Inc()
			return access.Identity{}, status.Error(codes.Unauthenticated, err.Error())
		}
	}
	s.metrics.refused.WithLabelValues(frontGRPC, refusedCaller).Inc()
	return access.Identity{}, status.Error(codes.Unauthenticated, "no certificate was shown")
}
