package transport_test

import (
	"crypto/tls"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/transport"
)

// secured is a pair of nodes with TLS, n2 changed by with.
func secured(t *testing.T, a *authority, with ...func(*transport.LinkOptions)) *linked {
	t.Helper()
	p := &linked{net: newMemNet()}
	p.l1 = p.net.node(t, "n1", a.secure(a.certify(t, "n1")))
	p.l2 = p.net.node(t, "n2", append([]func(*transport.LinkOptions){a.secure(a.certify(t, "n2"))}, with...)...)
	p.r1, p.r2 = replica(t, p.l1, "n1", 1), replica(t, p.l2, "n2", 1)
	return p
}

func TestLinksAreMutualTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := secured(t, newAuthority(t))
		answer(t, p.r2, follow)
		req := &raft.AppendEntriesRequest{RPCHeader: from(p.r1), Term: 1, Entries: []*raft.Log{{Data: make([]byte, 3<<20)}}}
		if err := p.r1.AppendEntries(server("n2"), address("n2"), req, new(raft.AppendEntriesResponse)); err != nil {
			t.Error(err)
		}
		if resp, err := install(p.r1, address("n2"), 3<<20, io.LimitReader(&endless{}, 3<<20)); err != nil || !resp.Success {
			t.Errorf("snapshot: %+v, %v", resp, err)
		}
	})
}

// Who can't prove who it is gets nowhere: n1 reaches n2 as each of these, and n2 as each of them is
// reached by n1. In both directions nothing arrives.
func TestOnlyTheRightCertificateWillDo(t *testing.T) {
	for _, tc := range []struct {
		name string
		with func(t *testing.T, a *authority, o *transport.LinkOptions)
	}{
		{"another authority's", func(t *testing.T, _ *authority, o *transport.LinkOptions) {
			other := newAuthority(t)
			other.secure(other.certify(t, "n2"))(o)
		}},
		{"another node's", func(t *testing.T, a *authority, o *transport.LinkOptions) { a.secure(a.certify(t, "n3"))(o) }},
		{"nobody's", func(_ *testing.T, a *authority, o *transport.LinkOptions) {
			o.Server = always(&tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool})
			o.Client = always(&tls.Config{RootCAs: a.pool})
		}},
		{"one whose name can't be read", func(t *testing.T, a *authority, o *transport.LinkOptions) {
			o.PeerName = func(tls.ConnectionState) (string, error) { return "", errors.New("no such field") }
		}},
		{"one whose name is no node's", func(t *testing.T, a *authority, o *transport.LinkOptions) {
			a.secure(a.certify(t, "N2."))(o)
		}},
		{"no TLS at all", func(_ *testing.T, _ *authority, o *transport.LinkOptions) { o.Server, o.Client = nil, nil }},
		{"settings that don't verify", func(t *testing.T, a *authority, o *transport.LinkOptions) {
			certificate := []tls.Certificate{a.certify(t, "n2")}
			o.Server = always(&tls.Config{Certificates: certificate, ClientAuth: tls.RequireAnyClientCert})
			o.Client = always(&tls.Config{Certificates: certificate, InsecureSkipVerify: true})
		}},
		{"settings that another server decides", func(t *testing.T, a *authority, o *transport.LinkOptions) {
			config := o.Server().Clone()
			config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }
			o.Server, o.Client = always(config), always(nil)
		}},
		{"chosen settings that don't verify", func(t *testing.T, a *authority, o *transport.LinkOptions) {
			config := o.Server().Clone()
			lax := &tls.Config{Certificates: config.Certificates, ClientAuth: tls.RequireAnyClientCert}
			config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return lax, nil }
			o.Server, o.Client = always(config), always(nil)
		}},
		{"chosen settings that choose others", func(t *testing.T, a *authority, o *transport.LinkOptions) {
			config, between := o.Server().Clone(), o.Server().Clone()
			between.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return o.Server(), nil }
			config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return between, nil }
			o.Server, o.Client = always(config), always(nil)
		}},
		{"an old version of TLS", func(t *testing.T, a *authority, o *transport.LinkOptions) {
			server, client := o.Server().Clone(), o.Client().Clone()
			server.MaxVersion, client.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
			o.Server, o.Client = always(server), always(client)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAuthority(t)
				p := secured(t, a, func(o *transport.LinkOptions) { tc.with(t, a, o) })
				for _, r := range []*transport.Remote{p.r1, p.r2} {
					answer(t, r, func(rpc raft.RPC) (any, error) {
						t.Errorf("%s got %+v", r.LocalAddr(), rpc.Command)
						return success(rpc)
					})
				}
				if err := heartbeat(p.r1, address("n2"), 1); err == nil {
					t.Error("n1 reached n2")
				}
				if err := heartbeat(p.r2, address("n1"), 1); err == nil {
					t.Error("n2 reached n1")
				}
				if _, err := install(p.r2, address("n1"), 1, strings.NewReader("x")); err == nil {
					t.Error("n2 sent n1 a snapshot")
				}
			})
		})
	}
}

// A stale name leads to another node: its certificate shows, and it gets nothing.
func TestANameThatLeadsToAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		p := secured(t, a)
		p.net.node(t, "n3", a.secure(a.certify(t, "n3")))
		p.net.mu.Lock()
		p.net.listeners["n2"] = p.net.listeners["n3"]
		p.net.mu.Unlock()
		if err := heartbeat(p.r1, address("n2"), 1); !errors.Is(err, transport.ErrUnreachable) {
			t.Errorf("got %v", err)
		}
	})
}

// Another node that answers in its name is found out too, even where names within the certificates
// are not what TLS itself compares.
func TestANodeThatAnswersForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		n := newMemNet()
		l1 := n.node(t, "n1", a.secure(a.certify(t, "n1")), func(o *transport.LinkOptions) {
			config := o.Client().Clone()
			config.ServerName = "n3"
			o.Client = always(config)
		})
		r1 := replica(t, l1, "n1", 1)
		listener := n.listen("n2")
		config := &tls.Config{Certificates: []tls.Certificate{a.certify(t, "n3")}, ClientAuth: tls.RequireAnyClientCert}
		var impostor sync.WaitGroup
		impostor.Go(func() {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			conn := tls.Server(c, config)
			if err := transport.Welcome(conn, cluster, "n2"); err == nil {
				t.Error("n1 said hello to it")
			}
		})
		if err := heartbeat(r1, address("n2"), 1); !errors.Is(err, transport.ErrUnreachable) {
			t.Errorf("got %v", err)
		}
		listener.Close()
		impostor.Wait()
	})
}

func TestAHandshakeHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := secured(t, newAuthority(t))
		answer(t, p.r2, success)
		for _, b := range []string{"", "\x16\x03\x01\x02\x00\x01", "garbage, not a handshake"} {
			c := p.knock(t, "n9")
			if _, err := c.Write([]byte(b)); err != nil {
				t.Error(err)
			}
			if !closedWithin(c, 5*time.Second) {
				t.Errorf("%q: still open", b)
			}
		}
		synctest.Wait() // it is counted after it is closed
		if n := p.l2.Refused(); n != 3 {
			t.Errorf("counted %d", n)
		}
		p.healthy(t)
	})
}

// Certificates are asked for at each connection: rotated ones count for the next, and a link that is up
// stays.
func TestRotatedCertificatesCountForNewConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		certificates := map[string]*atomic.Pointer[transport.LinkOptions]{"n1": {}, "n2": {}}
		rotate := func(node string, by *authority) {
			var o transport.LinkOptions
			by.secure(by.certify(t, node))(&o)
			certificates[node].Store(&o)
		}
		rotating := func(node string) func(*transport.LinkOptions) {
			return func(o *transport.LinkOptions) {
				o.Server = func() *tls.Config { return certificates[node].Load().Server() }
				o.Client = func() *tls.Config { return certificates[node].Load().Client() }
				o.PeerName = commonName
			}
		}
		first := newAuthority(t)
		rotate("n1", first)
		rotate("n2", first)
		p := &linked{net: newMemNet()}
		p.l1, p.l2 = p.net.node(t, "n1", rotating("n1")), p.net.node(t, "n2", rotating("n2"))
		p.r1, p.r2 = replica(t, p.l1, "n1", 1), replica(t, p.l2, "n2", 1)
		answer(t, p.r2, success)
		p.healthy(t)

		second := newAuthority(t) // the first is not trusted any more
		rotate("n1", second)
		rotate("n2", second)
		time.Sleep(time.Minute)
		p.healthy(t)
		if s := state(t, p.l1, "n2"); s.Connects != 1 {
			t.Errorf("the link that was up: %+v", s)
		}
		p.net.cut("n2")
		synctest.Wait()
		p.healthy(t)

		rotate("n1", first) // a slip
		p.net.cut("n2")
		synctest.Wait()
		if err := heartbeat(p.r1, address("n2"), 1); !errors.Is(err, transport.ErrUnreachable) {
			t.Errorf("with a certificate of another authority: %v", err)
		}
	})
}
