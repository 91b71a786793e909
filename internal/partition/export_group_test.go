package partition

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/fsm"
)

// LastIndex is the index of the newest entry in the replica's log.
func (g *Group) LastIndex() uint64 { return g.raft.LastIndex() }

// Load is how many batches are in the log's hands, and how many calls wait.
func (g *Group) Load() (batches, queued int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.batches, g.queue.total
}

// AddLearner has a server that doesn't vote join the group.
func (g *Group) AddLearner(id string) error {
	return g.raft.AddNonvoter(raft.ServerID(id), raft.ServerAddress(id), 0, time.Second).Error()
}

// ProposeRaw hands an entry to Raft as it is.
func (g *Group) ProposeRaw(entry []byte) error { return g.raft.Apply(entry, time.Second).Error() }

// Believe makes the leader take the term that it leads for another one, until
// it looks at Raft again.
func (g *Group) Believe(term uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	lead := *g.lead.Load()
	lead.term = term
	g.lead.Store(&lead)
}

// StampOf reads the leader's clock as a call does that learned of leadership in
// an earlier term.
func (g *Group) StampOf(term uint64) int64 { return g.stamp(&leadership{term: term}) }

// Look does the first half of Submit, which looks at the state, and returns the second.
func (g *Group) Look(calls ...*Call) (conclude func()) {
	lead := g.lead.Load()
	s := submission{group: g, lead: lead, now: g.stamp(lead), landed: g.landed.Load()}
	g.machine.Read(func(m *fsm.Machine) { s.consider(m, calls) })
	return s.conclude
}

// Await makes a call wait for the entry of a number and a term, as if it had been proposed here.
func (g *Group) Await(term, seq uint64, c *Call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flights[seq] = &flight{term: term, calls: []*Call{c}, since: g.source.Monotonic()}
	g.batches++
}

// Seal queues a call, and seals what is queued as who led in a term does that hasn't heard that it
// is over.
func (g *Group) Seal(term uint64, c *Call) (sealed int) {
	g.mu.Lock()
	g.queue.push(c)
	g.mu.Unlock()
	_, c.version = g.Enforced()
	return len(g.take(&leadership{term: term, ready: true}).checks)
}

// Applied hears of an entry as from the state machine.
func (g *Group) Applied(a fsm.Applied) { g.applied(a) }

// Tamper changes this replica's state behind the log's back.
func (g *Group) Tamper(f func(*fsm.Machine)) { g.machine.Read(f) }

// Compact takes a snapshot and keeps few of the entries that it covers, as after
// thousands of them and long after a follower went that isn't there.
func (g *Group) Compact() error {
	g.followers.mu.Lock()
	clear(g.followers.by)
	g.followers.mu.Unlock()
	return g.snapshot(20)
}

// SnapshotIndex is the last entry that the replica's newest snapshot covers.
func (g *Group) SnapshotIndex() string { return g.raft.Stats()["last_snapshot_index"] }

// SubmitAnew submits a call anew that has been so a number of times.
func (g *Group) SubmitAnew(c *Call, before int) {
	c.anew = before
	g.submitAnew([]*Call{c})
}

// Settle ends an entry as Raft's future does that failed.
func (g *Group) Settle(seq uint64, err error) { g.settle(seq, err) }

// Refuse hears that an entry was refused.
func (g *Group) Refuse(err error) { g.refused(err) }

// Seq is the number of the newest entry proposed here.
func (g *Group) Seq() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seq
}

// RaftState is what Raft says of the replica.
func (g *Group) RaftState() raft.RaftState { return g.raft.State() }

// Queue is the queue of calls that wait.
type Queue = queue

// NewQueue returns a queue of at most bound calls.
func NewQueue(bound int) *Queue { return newQueue(bound) }

// Push, Pop and Len are the queue's methods.
func (q *queue) Push(c *Call) *Call { return q.push(c) }
func (q *queue) Pop() *Call         { return q.pop() }
func (q *queue) Len() int           { return q.total }

// InDomain returns a call of a domain.
func InDomain(domain int32) *Call {
	c := &Call{}
	c.check.Domain = domain
	return c
}

// DomainOf is its reverse.
func DomainOf(c *Call) int32 { return c.check.Domain }

// LabelsOf returns the labels of a result.
func LabelsOf(r Result) [2]string { return resultLabels[r] }
