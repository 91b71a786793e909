package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// metered counts what crosses a connection, for the peer that it turns out to be.
type metered struct {
	net.Conn
	peer           atomic.Pointer[peer]
	proof          atomic.Pointer[proof] // nil: no TLS, or not yet
	sent, received uint64                // before the peer was known; only one goroutine is at it then
}

// Read counts what came.
func (m *metered) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	if p := m.peer.Load(); p != nil {
		p.received.Add(uint64(n))
	} else {
		m.received += uint64(n)
	}
	return n, err
}

// Write counts what went.
func (m *metered) Write(b []byte) (int, error) {
	n, err := m.Conn.Write(b)
	if p := m.peer.Load(); p != nil {
		p.sent.Add(uint64(n))
	} else {
		m.sent += uint64(n)
	}
	return n, err
}

// belongTo says whose connection it is.
func (m *metered) belongTo(p *peer) {
	p.sent.Add(m.sent)
	p.received.Add(m.received)
	m.peer.Store(p)
}

// channel is a connection after its handshake and hello.
type channel struct {
	net.Conn          // what frames go through: TLS, or plain
	plain    *metered // below it
	owner    *conns
}

// hangUp ends the connection at once. It closes the plain one: TLS would first wait to tell a peer that
// may have stopped reading.
func (c *channel) hangUp() {
	c.owner.release(c.plain)
	hangUp(c.plain)
}

// hangUp closes a connection that nobody has a use for: what closing says is of no use either.
func hangUp(c net.Conn) { _ = c.Close() }

// open makes a channel of a connection, which its owner can close from now on. Handshake and hello have
// until HelloTimeout.
func (l *Links) open(conn net.Conn, owner *conns) (*channel, error) {
	plain := &metered{Conn: conn}
	if !owner.hold(plain) {
		hangUp(conn)
		return nil, ErrClosed
	}
	c := &channel{Conn: plain, plain: plain, owner: owner}
	return c, conn.SetDeadline(time.Now().Add(l.opt.HelloTimeout))
}

// dial connects to a node for a purpose. The result is ready for frames and has no deadline.
func (l *Links) dial(ctx context.Context, p *peer, why purpose, owner *conns) (*channel, error) {
	ctx, cancel := context.WithTimeout(ctx, l.opt.HelloTimeout)
	defer cancel()
	conn, err := l.opt.Dial(ctx, p.node)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", p.node, err)
	}
	c, err := l.open(conn, owner)
	if err != nil {
		return nil, err
	}
	c.plain.belongTo(p)
	if err := l.knock(c, p.node, why); err != nil {
		c.hangUp()
		return nil, fmt.Errorf("connect to %s: %w", p.node, err)
	}
	return c, conn.SetDeadline(time.Time{})
}

// knock does the dialling side's handshake and hello.
func (l *Links) knock(c *channel, node string, why purpose) error {
	if l.opt.Client != nil {
		config, err := clientConfig(l.opt.Client(), node)
		if err != nil {
			return err
		}
		name, err := c.secure(tls.Client(c.plain, config), l.opt.PeerName)
		if err != nil {
			return err
		}
		if name != node {
			return fmt.Errorf("the certificate is that of node %q", name)
		}
	}
	return greet(c, hello{version: helloVersion, purpose: why, cluster: l.opt.Cluster, from: l.opt.Self, to: node})
}

// welcome does the accepting side's handshake and hello.
func (l *Links) welcome(c *channel) (hello, error) {
	name := ""
	if l.opt.Server != nil {
		config, err := serverConfig(l.opt.Server())
		if err != nil {
			return hello{}, err
		}
		if name, err = c.secure(tls.Server(c.plain, config), l.opt.PeerName); err != nil {
			return hello{}, err
		}
	}
	h, err := receive(c, l.opt.Self, l.opt.Cluster, name)
	if err != nil {
		return hello{}, err
	}
	return h, c.SetDeadline(time.Time{})
}

// secure does a handshake and returns the name of the other end, which is never empty.
func (c *channel) secure(conn *tls.Conn, peerName func(tls.ConnectionState) (string, error)) (string, error) {
	if err := conn.Handshake(); err != nil {
		return "", fmt.Errorf("handshake: %w", err)
	}
	state := conn.ConnectionState()
	if len(state.PeerCertificates) == 0 {
		return "", errors.New("handshake: no certificate")
	}
	name, err := peerName(state)
	if err != nil {
		return "", fmt.Errorf("read the name in the certificate: %w", err)
	}
	if !validNode(name) {
		return "", fmt.Errorf("the certificate's name %q is not a node's", name)
	}
	c.Conn = conn
	c.plain.proof.Store(&proof{state, name, peerName})
	return name, nil
}

// proof is how the other end of a connection has proven who it is.
type proof struct {
	state    tls.ConnectionState
	name     string
	peerName func(tls.ConnectionState) (string, error)
}

// again says whether it still proves that.
func (p *proof) again() error {
	switch name, err := p.peerName(p.state); {
	case err != nil:
		return err
	case name != p.name:
		return fmt.Errorf("the certificate's name is %q now", name)
	}
	return nil
}

// verify closes the connections whose other end can't prove any more who it is. What else has to end ends with them,
// and whoever has another certificate by now dials anew with that.
func (s *conns) verify(tell func(node string, err error)) {
	s.mu.Lock()
	open := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	for _, c := range open {
		p := c.proof.Load()
		if p == nil {
			continue
		}
		if err := p.again(); err != nil {
			tell(p.name, err)
			hangUp(c)
		}
	}
}

// clientConfig and serverConfig refuse settings with which the other end could be anybody.
func clientConfig(config *tls.Config, node string) (*tls.Config, error) {
	if config == nil || config.InsecureSkipVerify && config.VerifyConnection == nil && config.VerifyPeerCertificate == nil {
		return nil, errors.New("TLS settings don't verify the server")
	}
	config = strict(config)
	if config.ServerName == "" {
		config.ServerName = node
	}
	return config, nil
}

func serverConfig(config *tls.Config) (*tls.Config, error) {
	if !verifiesClients(config) {
		return nil, errUnverified
	}
	config = strict(config)
	if choose := config.GetConfigForClient; choose != nil {
		config.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) { return chosen(choose(h)) }
	}
	return config, nil
}

// chosen judges settings that were made for one connection, as those of certificates that rotate are: it is
// these that count, and nothing else would look at them. They choose no others again.
func chosen(config *tls.Config, err error) (*tls.Config, error) {
	switch {
	case err != nil:
		return nil, err
	case !verifiesClients(config) || config.GetConfigForClient != nil:
		return nil, errUnverified
	}
	return strict(config), nil
}

var errUnverified = errors.New("TLS settings don't verify the client")

func verifiesClients(config *tls.Config) bool {
	return config != nil && config.ClientAuth == tls.RequireAndVerifyClientCert
}

func strict(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.MinVersion = max(config.MinVersion, tls.VersionTLS13)
	// Frames are large or urgent; records that begin small help neither.
	config.DynamicRecordSizingDisabled = true
	// A resumed session would live on a certificate that was rotated away.
	config.SessionTicketsDisabled = true
	return config
}

// conns are open connections that their owner closes all at once.
type conns struct {
	mu     sync.Mutex
	closed bool
	open   map[*metered]struct{}
}

func newConns() *conns { return &conns{open: map[*metered]struct{}{}} }

// hold adds a connection; false if all were closed.
func (s *conns) hold(c *metered) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.open[c] = struct{}{}
	}
	return !s.closed
}

func (s *conns) release(c *metered) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// closeAll closes them, and all that would be added.
func (s *conns) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.open {
		hangUp(c)
	}
	clear(s.open)
}
