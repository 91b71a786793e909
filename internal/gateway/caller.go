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

// caller is who is at the other end of a connection.
type caller struct {
	keeper *access.Keeper
	state  tls.ConnectionState

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
		c.identity, c.err = c.keeper.Identify(c.state)
		c.verified = time.Now()
	}
	return c.identity, c.err
}

// callerInfo is what gRPC knows of a connection, and the caller.
type callerInfo struct {
	credentials.TLSInfo
	caller *caller
}

// doorkeeper makes connections safe, and says whom they are with.
type doorkeeper struct {
	credentials.TransportCredentials
	keeper *access.Keeper
}

func newDoorkeeper(k *access.Keeper) *doorkeeper {
	return &doorkeeper{credentials.NewTLS(k.ServerTLS()), k}
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
	c := &caller{keeper: d.keeper, state: t.State}
	if _, err := c.identify(); err != nil {
		return nil, nil, errors.Join(err, safe.Close())
	}
	return safe, callerInfo{t, c}, nil
}

// Clone returns a doorkeeper with the same keeper.
func (d *doorkeeper) Clone() credentials.TransportCredentials {
	return &doorkeeper{d.TransportCredentials.Clone(), d.keeper}
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
