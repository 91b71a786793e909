package clock

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Lease tells a leader whether it may answer from memory: a majority of the voters, itself
// included, answered in this term a request that was *sent* within the lease's length. The moment
// of sending counts, because from then on a voter that answered follows this leader for an election
// timeout; the length must not exceed that timeout.
//
// It reads the plain monotonic clock, since a lease lives within one process and one election
// timeout. What it allows is only what stays true for a moment after another leader was elected:
// denials, never an allow.
//
// The leader loop calls Reset whenever the term or the accumulator's gaps change and before it hands
// leadership over, since voters may then vote for another at once. Valid is one atomic load; all methods are safe
// for concurrent use.
type Lease struct {
	source Source
	length int64
	until  atomic.Int64 // the lease is valid before this monotonic reading

	mu    sync.Mutex
	self  string
	term  uint64 // 0: leads nothing
	floor int64  // answers to requests sent before this don't count
	need  int    // answers of others that make a majority
	peers []peerAnswer
}

// peerAnswer is the newest counted answer of one voter other than self.
type peerAnswer struct {
	id   string
	sent int64 // when the answered request was sent
}

const never = math.MinInt64

// NewLease returns a lease that is not valid until Reset names a term and a majority has answered.
// Voters are server ids. self counts only where it is one of them.
func NewLease(source Source, length time.Duration, self string, voters []string) *Lease {
	l := &Lease{source: source, length: int64(length), self: self}
	l.until.Store(never)
	l.setVoters(voters)
	return l
}

// Reset forgets every answer: only answers to requests sent from now on, in the given term, count.
// Term 0 says that this replica leads nothing, and leaves the lease invalid.
func (l *Lease) Reset(term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term, l.floor = term, l.source.Monotonic()
	for i := range l.peers {
		l.peers[i].sent = never
	}
	l.settle()
}

// SetVoters replaces the voters, and forgets every answer as Reset does: a majority of the new ones
// must answer again.
func (l *Lease) SetVoters(voters []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.floor = l.source.Monotonic()
	l.setVoters(voters)
	l.settle()
}

// Ack records that peer answered, in term, a request sent at the monotonic reading sentAt. Answers
// of another term, of others than voters, or to requests sent before the last Reset are ignored.
func (l *Lease) Ack(peer string, term uint64, sentAt int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if term != l.term || sentAt < l.floor {
		return
	}
	for i := range l.peers {
		if p := &l.peers[i]; p.id == peer && sentAt > p.sent {
			p.sent = sentAt
			l.settle()
			return
		}
	}
}

// Valid tells whether the lease holds at the monotonic reading now, to be taken in the moment of
// answering.
func (l *Lease) Valid(now int64) bool { return now < l.until.Load() }

func (l *Lease) setVoters(voters []string) {
	l.peers = l.peers[:0]
	l.need = len(voters)/2 + 1
	for _, id := range voters {
		if id == l.self {
			l.need--
			continue
		}
		l.peers = append(l.peers, peerAnswer{id: id, sent: never})
	}
}

// settle works out until when the lease lasts: length after the send that the last needed voter
// answered.
func (l *Lease) settle() {
	switch {
	case l.term == 0 || l.need > len(l.peers):
		l.until.Store(never)
	case l.need <= 0:
		l.until.Store(math.MaxInt64) // the only voter: nobody else can lead
	default:
		slices.SortFunc(l.peers, func(a, b peerAnswer) int { return cmp.Compare(b.sent, a.sent) })
		if last := l.peers[l.need-1].sent; last == never {
			l.until.Store(never)
		} else {
			l.until.Store(addClamped(last, l.length))
		}
	}
}
