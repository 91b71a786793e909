package power_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/partition"
)

// state is what one replica's stores hold. Two states share what didn't change.
type state struct {
	first    uint64     // index of entries[0]
	entries  []raft.Log // the log
	stable   map[string]string
	start    uint64 // number of the latest start
	highest  partition.Start
	snapshot saved // the newest
}

// saved is a snapshot.
type saved struct {
	index, term uint64
	at          int64 // decision time
	bytes       int
}

func (s *state) last() uint64 {
	if len(s.entries) == 0 {
		return 0
	}
	return s.first + uint64(len(s.entries)) - 1
}

// newest is the newest entry, in the log or in a snapshot.
func (s *state) newest() (term, index uint64) {
	if n := len(s.entries); n > 0 {
		return s.entries[n-1].Term, s.entries[n-1].Index
	}
	return s.snapshot.term, s.snapshot.index
}

func (s *state) seen() partition.Start {
	term, index := s.newest()
	return partition.Start{Number: s.start, Term: term, Index: index}.Later(s.highest)
}

// step is one thing that happens to the stores.
type step struct {
	kind      string
	logs      []raft.Log
	low, high uint64 // of a deletion
	key       string
	value     uint64
	snapshot  saved
	// may are the states that a loss of power in the middle of it may leave, the one before it first; the last is
	// what it leads to.
	may []*state
}

func (s *step) after() *state { return s.may[len(s.may)-1] }

// planner makes up what happens to a replica, as Raft would do it.
type planner struct {
	rng   *rand.Rand
	now   *state
	steps []*step
	term  uint64
	clock int64
}

// plan is the same for the same seed, in the process that does it and in the one that judges.
func plan(seed uint64, length int) []*step {
	p := &planner{rng: rand.New(rand.NewPCG(seed, 1)), now: &state{stable: map[string]string{}}, term: 1}
	p.begin("open")
	p.vote()
	for len(p.steps) < length {
		switch p.rng.IntN(14) {
		case 0:
			p.begin("open")
		case 1, 2:
			p.vote()
		case 3:
			p.truncate()
		case 4, 5:
			p.compact()
		case 6:
			p.install()
		default:
			p.store()
		}
	}
	return p.steps
}

// then adds a step that leads to a state, by way of others.
func (p *planner) then(s step, states ...*state) {
	s.may = append([]*state{p.now}, states...)
	p.steps, p.now = append(p.steps, &s), states[len(states)-1]
}

func (p *planner) copy() *state {
	s := *p.now
	s.stable = maps.Clone(p.now.stable)
	return &s
}

func (p *planner) begin(kind string) {
	s := p.copy()
	s.start++
	p.then(step{kind: kind}, s)
}

// vote is what Raft writes when it votes in a new term: three values, one after the other.
func (p *planner) vote() {
	p.term++
	for _, key := range []string{"CurrentTerm", "LastVoteTerm", "LastVoteCand"} {
		s := p.copy()
		s.stable[key] = string(binary.BigEndian.AppendUint64(nil, p.term))
		p.then(step{kind: "set", key: key, value: p.term}, s)
	}
}

// store appends entries, most of them small, some of several pages.
func (p *planner) store() {
	s := p.copy()
	_, index := s.newest()
	var logs []raft.Log
	for range 1 + p.rng.IntN(6) {
		index++
		p.clock += int64(1 + p.rng.IntN(1000))
		logs = append(logs, newEntry(p.rng, index, p.term, p.clock))
	}
	if len(s.entries) == 0 {
		s.first = logs[0].Index
	}
	s.entries = append(s.entries[:len(s.entries):len(s.entries)], logs...)
	p.then(step{kind: "store", logs: logs}, s)
}

// newEntry is an entry in these tests: a time, the term that it was stamped in, and bytes.
func newEntry(rng *rand.Rand, index, term uint64, at int64) raft.Log {
	size := 16 + rng.IntN(200)
	if rng.IntN(8) == 0 {
		size = rng.IntN(40_000) + 16
	}
	data := make([]byte, 16, size)
	binary.BigEndian.PutUint64(data, uint64(at))
	binary.BigEndian.PutUint64(data[8:], term)
	for len(data) < size {
		data = append(data, byte(rng.IntN(256)))
	}
	return raft.Log{Index: index, Term: term, Data: data}
}

// truncate takes entries off the end, as a follower does that hears of others in their place, and stores those.
func (p *planner) truncate() {
	n := len(p.now.entries)
	if n < 2 {
		return
	}
	keep := max(1, n-1-p.rng.IntN(5))
	if applied := p.now.snapshot.index; p.now.entries[keep].Index <= applied {
		return // what is in a snapshot is committed
	}
	noted, s := p.copy(), p.copy()
	last := p.now.entries[n-1]
	noted.highest = p.now.highest.Later(partition.Start{Term: last.Term, Index: last.Index})
	s.highest, s.entries = noted.highest, s.entries[:keep]
	p.term++
	p.then(step{kind: "delete", low: p.now.entries[keep].Index, high: last.Index}, noted, s)
	p.store()
}

// compact takes a snapshot of what the log holds and drops what is in it, but for a few entries.
func (p *planner) compact() {
	n := len(p.now.entries)
	if n < 4 {
		return
	}
	upTo := p.now.entries[n/2+p.rng.IntN(n-n/2)]
	if upTo.Index <= p.now.snapshot.index {
		return
	}
	s := p.copy()
	s.snapshot = saved{upTo.Index, upTo.Term, timeIn(upTo.Data), 8 + p.rng.IntN(30_000)}
	p.then(step{kind: "snapshot", snapshot: s.snapshot}, s)
	high := upTo.Index - uint64(p.rng.IntN(3))
	if high < p.now.first || high >= p.now.last() {
		return
	}
	shorter := p.copy()
	shorter.entries = shorter.entries[high+1-shorter.first:]
	shorter.first = high + 1
	p.then(step{kind: "delete", low: p.now.first, high: high}, shorter)
}

// install is a snapshot that a leader sends, of what this replica never had.
func (p *planner) install() {
	s := p.copy()
	term, index := p.now.newest()
	p.clock += 1_000_000
	s.snapshot = saved{index + 1 + uint64(p.rng.IntN(50)), max(p.term, term), p.clock, 8 + p.rng.IntN(60_000)}
	s.entries = nil
	p.then(step{kind: "snapshot", snapshot: s.snapshot}, s)
}

func timeIn(data []byte) int64 { return int64(binary.BigEndian.Uint64(data)) }

// content is what a snapshot holds: its time, and bytes that follow from it.
func (s saved) content() []byte {
	rng := rand.New(rand.NewPCG(s.index, s.term))
	b := binary.BigEndian.AppendUint64(nil, uint64(s.at))
	for len(b) < s.bytes {
		b = append(b, byte(rng.IntN(256)))
	}
	return b
}

func (s saved) String() string { return fmt.Sprintf("snapshot of %d, term %d", s.index, s.term) }
