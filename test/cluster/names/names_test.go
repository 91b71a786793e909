// Package names_test runs nodes, a client and a tool that know one another by names, as in Kubernetes, before a name
// server that the test writes. It is a process of its own because what resolves names is one for all of a process.
package names_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/quorate/quorate/test/rig"
)

// programs are those that make certificates.
var programs rig.Programs

// dns is what answers all questions of this process for addresses.
var dns *nameServer

func TestMain(m *testing.M) {
	os.Exit(rig.Run(func(built rig.Programs) int {
		programs = built
		var err error
		if dns, err = serveNames(); err != nil {
			panic(err)
		}
		net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "udp", dns.conn.LocalAddr().String())
		}}
		status := m.Run()
		dns.close()
		return status
	}, "cmd/quotactl"))
}

// nameServer answers for names that it is given, with one IPv4 address each. Of all others it says that there are none.
type nameServer struct {
	conn    *net.UDPConn
	serving sync.WaitGroup

	mu      sync.Mutex
	places  map[string]net.IP
	refused map[string]int // questions about names that there weren't
	given   map[string]int // and about others
}

func serveNames() (*nameServer, error) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	s := &nameServer{conn: conn, places: map[string]net.IP{}, refused: map[string]int{}, given: map[string]int{}}
	s.serving.Go(s.serve)
	return s, nil
}

func (s *nameServer) close() {
	_ = s.conn.Close() // ends serve
	s.serving.Wait()
}

func (s *nameServer) serve() {
	question := make([]byte, 1<<12)
	for {
		n, from, err := s.conn.ReadFromUDP(question)
		if err != nil {
			return
		}
		if answer := s.answer(question[:n]); answer != nil {
			_, _ = s.conn.WriteToUDP(answer, from) // who hears nothing asks again
		}
	}
}

// set gives a name an address; nil: none.
func (s *nameServer) set(name string, at net.IP) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places[name] = at
}

// asked is how often an address was asked for and given, or not.
func (s *nameServer) asked(name string) (given, refused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.given[name], s.refused[name]
}

const (
	dnsHeader = 12
	typeA     = 1
	noSuch    = 3 // NXDOMAIN
)

// answer makes one of a question; nil: it is none.
func (s *nameServer) answer(question []byte) []byte {
	name, rest := readName(question)
	if len(rest) < 4 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.places[name].To4()
	asked := question[:len(question)-len(rest)+4]
	m := bytes.Clone(asked)
	m[2], m[3] = m[2]|0x84, 0x80                   // an answer, of whoever knows
	binary.BigEndian.PutUint16(m[4:], 1)           // one question
	copy(m[6:dnsHeader], []byte{0, 0, 0, 0, 0, 0}) // and nothing else yet
	switch {
	case at == nil:
		m[3] |= noSuch
		s.refused[name]++
	case binary.BigEndian.Uint16(rest) == typeA:
		s.given[name]++
		m[7] = 1
		m = append(m, 0xc0, dnsHeader, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4) // the question's name, for no time
		m = append(m, at...)
	}
	return m
}

// readName reads the name that a message asks for, and returns what is behind it.
func readName(m []byte) (string, []byte) {
	if len(m) < dnsHeader {
		return "", nil
	}
	var labels []string
	for rest := m[dnsHeader:]; len(rest) > 0; {
		n := int(rest[0])
		if n == 0 {
			return strings.ToLower(strings.Join(labels, ".")), rest[1:]
		}
		if len(rest) < 1+n || n > 63 {
			return "", nil
		}
		labels, rest = append(labels, string(rest[1:1+n])), rest[1+n:]
	}
	return "", nil
}
