package checker

import (
	"encoding/hex"
	"math"
	"strings"
)

// call is a Call in as little room as possible: a history has millions.
type call struct {
	id                   [16]byte
	sent, answered, time int64
	cost                 uint64
	epoch                uint64
	subject              int32 // none: no policy took part
	partition            int32
	client, node, reason int32 // in store.names
	line                 int32
	answer               answer
	replayed, resent     bool
}

type answer uint8

const (
	isAllow answer = iota
	isDeny
	isUnavailable
	isUnknown
	isError
)

const none = -1

// chunk is how many calls are kept in one piece.
const chunk = 1 << 16

// store keeps calls, and each string once.
type store struct {
	chunks   [][]call
	count    int
	names    []string
	numbers  map[string]int32
	subjects []subject
	known    map[subjectName]int32
}

// subject is whose allowance: a quota and a key.
type subject struct {
	quota int32 // in store.names
	key   string
}

type subjectName struct{ quota, key string }

func newStore() store {
	return store{numbers: map[string]int32{}, known: map[subjectName]int32{}}
}

// name returns the number of a string.
func (s *store) name(text string) int32 {
	n, ok := s.numbers[text]
	if !ok {
		n = int32(len(s.names))
		s.names = append(s.names, text)
		s.numbers[text] = n
	}
	return n
}

// subject returns the number of a quota and a key.
func (s *store) subject(quota, key string) int32 {
	name := subjectName{quota, key}
	n, ok := s.known[name]
	if !ok {
		n = int32(len(s.subjects))
		s.subjects = append(s.subjects, subject{s.name(quota), key})
		s.known[name] = n
	}
	return n
}

func (s *store) at(i int32) *call { return &s.chunks[i/chunk][i%chunk] }

func (s *store) add(line int, l *Call) {
	if s.count%chunk == 0 {
		s.chunks = append(s.chunks, make([]call, 0, chunk))
	}
	last := &s.chunks[len(s.chunks)-1]
	*last = append(*last, call{
		sent: l.Sent, answered: l.Answered, time: l.Time, cost: l.Cost, epoch: l.Epoch,
		subject: none, partition: int32(l.Partition), client: s.name(l.Client), node: s.name(l.Node),
		reason: s.name(l.Reason), line: int32(line), answer: numberOf(l.Answer), replayed: l.Replayed, resent: l.Resent,
	})
	c := &(*last)[len(*last)-1]
	_, _ = hex.Decode(c.id[:], []byte(l.ID)) // Call.check has seen its digits
	if l.Quota != "" {
		c.subject = s.subject(l.Quota, l.Key)
	}
	// An outcome that isn't known goes by more than one name.
	c.resent = c.resent || strings.HasSuffix(l.Reason, "OUTCOME_UNKNOWN") || strings.HasSuffix(l.Reason, "REASON_UNSPECIFIED") && l.Answer == Unavailable
	if l.Answered == 0 {
		c.answered = math.MaxInt64
	}
	s.count++
}

func numberOf(a Answer) answer {
	switch a {
	case Allow:
		return isAllow
	case Deny:
		return isDeny
	case Unavailable:
		return isUnavailable
	case Unknown:
		return isUnknown
	default:
		return isError
	}
}

func (a answer) text() Answer { return [...]Answer{Allow, Deny, Unavailable, Unknown, Error}[a] }

// line is the line that a call was.
func (s *store) line(c *call) Line {
	l := &Call{
		Client: s.names[c.client], ID: hex.EncodeToString(c.id[:]), Cost: c.cost, Sent: c.sent, Answered: c.answered,
		Answer: c.answer.text(), Reason: s.names[c.reason], Replayed: c.replayed, Resent: c.resent, Partition: int(c.partition),
		Epoch: c.epoch, Time: c.time, Node: s.names[c.node],
	}
	if c.subject != none {
		l.Quota, l.Key = s.names[s.subjects[c.subject].quota], s.subjects[c.subject].key
	}
	if c.answered == math.MaxInt64 {
		l.Answered = 0
	}
	return l
}
