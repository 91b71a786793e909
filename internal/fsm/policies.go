package fsm

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/quorate/quorate/internal/policy"
)

// A policy set's body is a flag, the version that it expects, its own, and the set in canonical form:
//
//	0  conditional u8   1 expected: epoch u64, number u64   17 version: epoch u64, number u64   33 canonical
const (
	policiesHead  = 33
	unconditional = 0
	conditional   = 1
)

// change is what an entry says of a policy set.
type change struct {
	conditional       bool
	expected, version Version
	canonical         []byte
}

// PoliciesEntry switches the partition to a policy set in canonical form that another partition has put in order: any
// newer version than the one in force.
func PoliciesEntry(h Header, v Version, canonical []byte) []byte {
	return policiesEntry(h, change{version: v, canonical: canonical})
}

// ChangeEntry puts a policy set in the place of the expected version, the zero one if there is none: the order of
// sets is that of the accepted ones. Its own version is the expected one's number and one, in the partition's epoch.
func ChangeEntry(h Header, expected, v Version, canonical []byte) []byte {
	return policiesEntry(h, change{conditional: true, expected: expected, version: v, canonical: canonical})
}

func policiesEntry(h Header, c change) []byte {
	h.Kind = KindPolicies
	e := make([]byte, headerBytes, headerBytes+policiesHead+len(c.canonical))
	flag := byte(unconditional)
	if c.conditional {
		flag = conditional
	}
	e = append(e, flag)
	for _, v := range []Version{c.expected, c.version} {
		e = binary.LittleEndian.AppendUint64(e, v.Epoch)
		e = binary.LittleEndian.AppendUint64(e, v.Number)
	}
	return seal(append(e, c.canonical...), h)
}

func parsePolicies(body []byte) (c change, err error) {
	if len(body) < policiesHead || body[0] > conditional {
		return c, fmt.Errorf("%w: a policy set of %d bytes", ErrDamaged, len(body))
	}
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(body[at:]) }
	c = change{
		conditional: body[0] == conditional,
		expected:    Version{word(1), word(9)}, version: Version{word(17), word(25)},
		canonical: body[policiesHead:],
	}
	if !c.conditional && c.expected != (Version{}) {
		return c, fmt.Errorf("%w: a policy set that expects %v under no condition", ErrDamaged, c.expected)
	}
	return c, nil
}

// applyPolicies switches to a set, if it may come now; the same set again changes nothing. The leader compiled the
// set before it proposed it, so a replica that can't is of other software than the leader: it must stop, or it would
// decide otherwise.
func (m *Machine) applyPolicies(body []byte, a *Applied) error {
	c, err := parsePolicies(body)
	if err != nil {
		return err
	}
	switch {
	case m.set != nil && m.version == c.version && m.setHash == sha256.Sum256(c.canonical):
		return nil
	case !m.formed:
		a.Refusal = RefusedSet
		return nil
	case !m.succeeds(c):
		a.Refusal = RefusedConflict
		return nil
	}
	set, err := compile(c.canonical)
	if err != nil {
		return fmt.Errorf("switch to policy set %d.%d: %w", c.version.Epoch, c.version.Number, err)
	}
	if !m.permits(c, set.Set()) {
		a.Refusal = RefusedSet
		return nil
	}
	r := m.reassign(set)
	if r.graves() > maxGraves {
		a.Refusal = RefusedSet
		return nil
	}
	m.install(r)
	m.enforce(c.version, c.canonical, set)
	return nil
}

// maxGraves bounds what is remembered of deleted quotas. It is twice the bound that stands where sets are put in order:
// one who follows has another clock, and may have to remember them for longer.
const maxGraves = 2 * policy.MaxTombstones

// succeeds reports whether c's version is the one to come.
func (m *Machine) succeeds(c change) bool {
	if !m.version.Before(c.version) {
		return false
	}
	next := Version{Epoch: m.settings.Epoch, Number: m.version.Number + 1}
	return !c.conditional || c.expected == m.version && c.version == next
}

func compile(canonical []byte) (*policy.Compiled, error) {
	parsed, err := policy.ParseCanonical(canonical)
	if err != nil {
		return nil, err
	}
	return policy.Compile(parsed)
}

// permits holds next to the rule of changes. Where the order of sets was decided elsewhere, what is remembered of
// deleted quotas stands against nothing.
func (m *Machine) permits(c change, next policy.Set) bool {
	var now policy.Set
	if m.set != nil {
		now = m.set.Set()
	}
	if c.conditional {
		return len(now.ChangeTo(next, m.Tombstones())) == 0
	}
	return len(now.FollowTo(next)) == 0
}

// enforce notes the set that is in force from now on.
func (m *Machine) enforce(v Version, canonical []byte, set *policy.Compiled) {
	m.set = set
	m.version, m.setHash = v, sha256.Sum256(canonical)
	m.canonical = append([]byte(nil), canonical...)
}
