package transport

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"testing/synctest"
)

var (
	ours   = [16]byte{1}
	theirs = [16]byte{2}
)

func TestHello(t *testing.T) {
	honest := hello{helloVersion, forRequests, ours, "n1", "n2"}
	with := func(change func(*hello)) hello { h := honest; change(&h); return h }
	for _, tc := range []struct {
		name        string
		h           hello
		certificate string
		want        string // part of the dialling side's error
	}{
		{"an honest one", honest, "n1", ""},
		{"for a snapshot", with(func(h *hello) { h.purpose = forSnapshot }), "n1", ""},
		{"without certificates", honest, "", ""},
		{"of another cluster", with(func(h *hello) { h.cluster = theirs }), "n1", "another cluster"},
		{"of another version", with(func(h *hello) { h.version++ }), "n1", "another version"},
		{"to another node", with(func(h *hello) { h.to = "n3" }), "n1", "another one"},
		{"of another node than the certificate's", honest, "n3", "another one"},
		{"of the node itself", with(func(h *hello) { h.from = "n2" }), "n2", "another one"},
		{"of something that can't be a node", with(func(h *hello) { h.from = "N 1" }), "", "another one"},
		{"for nothing known", with(func(h *hello) { h.purpose = 9 }), "n1", "wait for the welcome"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := net.Pipe()
				refused := make(chan error, 1)
				go func() {
					got, err := receive(b, "n2", ours, tc.certificate)
					if err == nil && got != tc.h {
						t.Errorf("got %+v", got)
					}
					b.Close()
					refused <- err
				}()
				err := greet(a, tc.h)
				if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
					t.Errorf("the dialling side: %v", err)
				}
				if other := <-refused; (other == nil) != (tc.want == "") {
					t.Errorf("the accepting side: %v", other)
				}
			})
		})
	}
}

func TestAWelcomeIsChecked(t *testing.T) {
	for _, tc := range []struct {
		name string
		w    welcome
	}{
		{"by another node", welcome{helloVersion, accepted, "n3"}},
		{"without a verdict", welcome{helloVersion, 0, "n2"}},
		{"of another version", welcome{helloVersion + 1, accepted, "n2"}},
	} {
		a, b := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = readPrefixed(b)
			_ = prefixed(b, func(c *coder) { c.welcome(&tc.w) })
			b.Close()
		}()
		if err := greet(a, hello{helloVersion, forRequests, ours, "n1", "n2"}); err == nil {
			t.Errorf("welcome %s was accepted", tc.name)
		}
		<-done
	}
}

func TestNamesOfNodesAndReplicas(t *testing.T) {
	for name, want := range map[string]bool{
		"n1": true, "quorate-0": true, "0": true, strings.Repeat("a", 63): true,
		"": false, "-n": false, "n-": false, "N1": false, "n.1": false, "n_1": false, strings.Repeat("a", 64): false,
	} {
		if validNode(name) != want {
			t.Errorf("validNode(%q) = %v", name, !want)
		}
	}
	for id, want := range map[string]string{
		"n1-0123456789abcdef": "n1", "quorate-0-0123456789abcdef": "quorate-0",
		"n1": "", "": "", "-0123456789abcdef": "", "n1-0123456789ABCDEF": "", "n1-0123456789abcde": "", "n10123456789abcdef": "",
	} {
		if got := nodeOf(id); got != want {
			t.Errorf("nodeOf(%q) = %q", id, got)
		}
	}
}

func FuzzHello(f *testing.F) {
	encoded := func(walk func(*coder)) []byte {
		var b bytes.Buffer
		_ = prefixed(&b, walk)
		return b.Bytes()[1:]
	}
	f.Add(encoded(func(c *coder) { c.hello(&hello{helloVersion, forRequests, ours, "n1", "n2"}) }))
	f.Add(encoded(func(c *coder) { c.welcome(&welcome{helloVersion, otherCluster, "n2"}) }))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > maxHello {
			return
		}
		if h, err := decodeHello(b); err == nil && h.version == helloVersion {
			if again := encoded(func(c *coder) { c.hello(&h) }); !bytes.Equal(again, b) {
				t.Errorf("%x reads as %+v, which is written as %x", b, h, again)
			}
		}
		if w, err := decodeWelcome(b); err == nil {
			if again := encoded(func(c *coder) { c.welcome(&w) }); !bytes.Equal(again, b) {
				t.Errorf("%x reads as %+v, which is written as %x", b, w, again)
			}
		}
	})
}
