package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// LinkOptions say who a node is and how it reaches its peers. Zero durations and sizes take the
// defaults named beside them.
type LinkOptions struct {
	// Self is this node's name, a DNS label: 1 to 63 of a-z, 0-9 and hyphens within.
	Self string
	// Cluster is the cluster's id. Nodes of different clusters refuse each other.
	Cluster [16]byte
	// Listener accepts plain TCP. Links own it, and close it.
	Listener net.Listener
	// Dial opens plain TCP to a node, by its name. It must return when ctx ends.
	Dial func(ctx context.Context, node string) (net.Conn, error)

	// Server and Client give the TLS settings, for each connection anew so that rotated certificates
	// count. Both ends must verify the other's certificate, or the connection is refused; TLS 1.3 is
	// the least. A client's empty ServerName becomes the node's name. With both nil there is no TLS,
	// and a peer is who it says it is: for the loopback interface only.
	Server, Client func() *tls.Config
	// PeerName returns the node's name in the certificate of the other end, or an error if that doesn't count any
	// more: it is asked again every VerifyEvery for as long as the connection is open. Needed with TLS.
	PeerName func(tls.ConnectionState) (node string, err error)

	// Log hears of links that come and go, and of who was refused.
	Log *slog.Logger
	// Now reads the plain monotonic clock, in nanoseconds. Ages are counted with it; deadlines run on
	// timers. Default: the process's own.
	Now func() int64

	// MaxMessage bounds one request, in bytes, on either side. Half of it must be above the longest single
	// entry, or a follower never gets that one. 64 MiB.
	MaxMessage int
	// QueueMessages bounds the requests of one group that wait to be sent to one peer, and those of one
	// peer that wait for one group. Raft has two or three at a time. 64.
	QueueMessages int
	// QueueBytes bounds both in bytes; a single one always fits. Twice MaxMessage.
	QueueBytes int

	// Timeout bounds a request without entries, the wait for a first connection included. It must leave
	// time for a slow fdatasync of the peer, behind which a heartbeat waits. 2 s.
	Timeout time.Duration
	// EntriesTimeout bounds a request with entries; one second is added for each MiB of them. 5 s.
	EntriesTimeout time.Duration
	// SnapshotStall is how long a snapshot may not move by a single chunk. 10 s.
	SnapshotStall time.Duration
	// RestoreTimeout bounds the wait for the answer to a snapshot once it was sent, which comes after
	// the peer's restore; one second is added for each MiB. 30 s.
	RestoreTimeout time.Duration
	// HelloTimeout bounds dialling, and the handshake and hello of a connection, each. 5 s.
	HelloTimeout time.Duration
	// VerifyEvery is how often it is looked at who is at the other end of each open connection, so that none
	// outlives its certificate, or the CA that was trusted for it, by more. 10 s.
	VerifyEvery time.Duration
	// PingEvery is how often a link is tried, and Silence how long one may bring or take nothing before
	// it counts as broken; at least twice as long. 1 s and 5 s.
	PingEvery, Silence time.Duration
	// BackoffMin and BackoffMax bound the wait between attempts to reach a peer, which doubles. Half of
	// each wait is random. A link that lasts as long as BackoffMax starts anew at the least. 50 ms, 1 s.
	BackoffMin, BackoffMax time.Duration
	// IdleAfter is when a link that nobody uses closes: its peer may have left the cluster. 10 min.
	IdleAfter time.Duration
}

func (o *LinkOptions) setDefaults() {
	begun := time.Now()
	if o.Now == nil {
		o.Now = func() int64 { return int64(time.Since(begun)) }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	setDefault(&o.MaxMessage, 64<<20)
	setDefault(&o.QueueMessages, 64)
	setDefault(&o.QueueBytes, 2*o.MaxMessage)
	setDefault(&o.Timeout, 2*time.Second)
	setDefault(&o.EntriesTimeout, 5*time.Second)
	setDefault(&o.SnapshotStall, 10*time.Second)
	setDefault(&o.RestoreTimeout, 30*time.Second)
	setDefault(&o.HelloTimeout, 5*time.Second)
	setDefault(&o.VerifyEvery, 10*time.Second)
	setDefault(&o.PingEvery, time.Second)
	setDefault(&o.Silence, 5*time.Second)
	setDefault(&o.BackoffMin, 50*time.Millisecond)
	setDefault(&o.BackoffMax, time.Second)
	setDefault(&o.IdleAfter, 10*time.Minute)
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// maxMessage is the most that a frame's fields can announce, with room to spare.
const maxMessage = 1 << 30

func (o *LinkOptions) check() error {
	switch {
	case !validNode(o.Self):
		return fmt.Errorf("node name %q is not a DNS label", o.Self)
	case o.Listener == nil || o.Dial == nil:
		return errors.New("a listener and a way to dial are needed")
	case (o.Server == nil) != (o.Client == nil):
		return errors.New("TLS is for both directions or for none")
	case o.Server != nil && o.PeerName == nil:
		return errors.New("with TLS, a way to read the peer's name is needed")
	case o.MaxMessage > maxMessage:
		return fmt.Errorf("messages of %d bytes: at most %d", o.MaxMessage, maxMessage)
	case o.Silence < 2*o.PingEvery:
		return fmt.Errorf("a silence of %v is too short for a ping every %v", o.Silence, o.PingEvery)
	case o.BackoffMax < o.BackoffMin:
		return fmt.Errorf("backoff from %v to %v", o.BackoffMin, o.BackoffMax)
	}
	return nil
}
