package clienttest

import (
	"fmt"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/policy"
)

// epoch of all partitions: nothing is ever rewound here.
const epoch = 1

// bound is more than any test needs.
const bound = 1 << 32

// cell is one partition: the state machine, and a leader that feeds it. The server's lock guards it.
type cell struct {
	machine   *fsm.Machine
	partition uint16
	index     uint64
}

func newCell(seed keyspace.Seed, partition, partitions int) *cell {
	c := &cell{machine: fsm.New(), partition: uint16(partition)}
	c.apply(fsm.First(c.header(0)))
	c.apply(fsm.SettingsEntry(c.header(0), fsm.Settings{
		Seed: seed, Partition: uint16(partition), Partitions: uint16(partitions), Epoch: epoch,
		Horizon: fsm.DefaultHorizon, Bound: bound, DomainBound: bound,
	}))
	return c
}

func (c *cell) header(now int64) fsm.Header { return fsm.Header{Time: now, Term: 1, Seq: c.index} }

// apply applies an entry of our own making: an error is a defect.
func (c *cell) apply(entry []byte) fsm.Applied {
	c.index++
	a, err := c.machine.Apply(c.index, 1, entry)
	if err != nil {
		panic("clienttest: " + err.Error())
	}
	return a
}

func (c *cell) tick(now int64) { c.apply(fsm.Tick(c.header(now))) }

// adopt switches to a set.
func (c *cell) adopt(now int64, v fsm.Version, canonical []byte) error {
	if a := c.apply(fsm.PoliciesEntry(c.header(now), v, canonical)); a.Refusal != fsm.Accepted {
		return fmt.Errorf("partition %d does not take such a change of its policies", c.partition)
	}
	return nil
}

// ask is one check as the cell is asked it.
type ask struct {
	domain      string
	descriptors []keyspace.Descriptor
	cost        uint64
	id          fsm.ID
	fence       *int64
	asked       *quotav1.Resolution
	explicit    bool // the asker has named the partition
	peek        bool
}

// decide decides a check at the time now, in the order in which a leader does.
func (c *cell) decide(now int64, a *ask) (*quotav1.Answer, *quotav1.Failure) {
	r := c.resolver()
	check, answer, failure := r.resolve(a)
	if answer != nil || failure != nil {
		return c.sign(answer, now, a), failure
	}
	check.ID, check.Fence = a.id, c.machine.Now()
	if a.fence != nil {
		check.Fence = *a.fence
	}
	said, known := c.machine.Recall(check)
	if !known {
		said, known = c.machine.Refuse(check, max(now, c.machine.Now()))
	}
	switch {
	case a.peek && (!known || said.Verdict == fsm.VerdictAllow):
		return c.sign(&quotav1.Answer{Decision: quotav1.Decision_DECISION_WOULD_ALLOW}, now, a), nil
	case !known:
		_, version := c.machine.Set()
		said = c.apply(fsm.BatchEntry(c.header(now), version, []*fsm.Check{check})).Answers[0]
	}
	if failure := failureOf(&said); failure != nil {
		return nil, failure
	}
	return c.sign(answerOf(&said, r.set.Policy(said.Policy)), said.Time, a), nil
}

func (c *cell) resolver() resolver {
	set, version := c.machine.Set()
	settings, _ := c.machine.Settings()
	return resolver{set: set, version: version, seed: settings.Seed, partition: c.partition, slots: c.machine.Slots()}
}

// sign says who has decided, and when.
func (c *cell) sign(a *quotav1.Answer, now int64, of *ask) *quotav1.Answer {
	if a == nil {
		return nil
	}
	_, version := c.machine.Set()
	a.DecisionTimeNs, a.Partition, a.Epoch, a.SetVersion = now, uint32(c.partition), epoch, version.Number
	a.DecisionId = of.id[:]
	return a
}

// inspect says what a descriptor has used.
func (c *cell) inspect(now int64, a *ask) (*quotav1.InspectResponse, *quotav1.Failure) {
	_, version := c.machine.Set()
	now = max(now, c.machine.Now())
	m := &quotav1.InspectResponse{DecisionTimeNs: now, Partition: uint32(c.partition), Epoch: epoch, SetVersion: version.Number}
	r := c.resolver()
	check, answer, failure := r.resolve(a)
	switch {
	case failure != nil:
		return nil, failure
	case answer != nil:
		m.Reason = answer.GetReason()
		return m, nil
	}
	p := r.set.Policy(check.Charges[0].Policy)
	for _, u := range c.machine.Inspect(nil, &check.Charges[0], now) {
		m.Limits = append(m.Limits, usageOf(&u, p, now))
	}
	return m, nil
}

// resolver resolves checks under one set as a leader does.
type resolver struct {
	set       *policy.Compiled
	version   fsm.Version
	seed      keyspace.Seed
	partition uint16
	slots     *keyspace.Table
}
