package partition

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/policy"
)

var (
	// ErrSetVersion says that another version of the policy set is in force than the one expected.
	ErrSetVersion = errors.New("another version of the policy set is in force")
	// ErrOtherSet says that another policy set is in force than the one that was to be the first.
	ErrOtherSet = errors.New("another policy set is in force")
)

// enforced is what a replica's state says of policies.
type enforced struct {
	settings fsm.Settings
	formed   bool
	set      *policy.Compiled // nil: none yet
	version  fsm.Version
	hash     [32]byte
	gone     []policy.Tombstone
}

func (g *Group) enforced() (e enforced) {
	g.machine.Read(func(m *fsm.Machine) {
		e.set, e.version = m.Set()
		e.settings, e.formed = m.Settings()
		e.hash, e.gone = m.SetHash(), m.Tombstones()
	})
	return e
}

// has reports whether that very set is in force.
func (e *enforced) has(set policy.Set) bool { return e.set != nil && e.hash == set.Hash() }

// current is the set in force, the empty one before the first.
func (e *enforced) current() policy.Set {
	if e.set == nil {
		return policy.Set{}
	}
	return e.set.Set()
}

// judge says what stands against putting set in the place of the one in force; that set itself may stay, whatever
// version was expected: its order may be a repeated one.
func (e *enforced) judge(set policy.Set, expected *fsm.Version) error {
	if _, err := policy.Compile(set); err != nil {
		return err
	}
	if e.has(set) {
		return nil
	}
	if problems := policy.TooLarge(set.Canonical()); len(problems) > 0 {
		return problems
	}
	if expected != nil && *expected != e.version {
		return ErrSetVersion
	}
	if problems := e.current().ChangeTo(set, e.gone); len(problems) > 0 {
		return problems
	}
	return nil
}

// CheckPolicies says whether the set could be put in the place of the one in force here: [policy.Problems] if it
// isn't accepted, [ErrSetVersion] if another version is in force than the one expected, where one is.
func (g *Group) CheckPolicies(set policy.Set, expected *fsm.Version) error {
	e := g.enforced()
	return e.judge(set, expected)
}

// ChangePolicies puts a policy set in the place of the one in force, if that has the expected version (nil: whatever
// it has; the zero one: there is none yet), and returns the version in force afterwards. The set that is in force
// already changes nothing. It fails as CheckPolicies does, and with a [*NotLeaderError], wrapped, on any replica but
// the ready leader. After any other error the set may be in force, or come into force yet: repeat the call.
func (g *Group) ChangePolicies(ctx context.Context, set policy.Set, expected *fsm.Version) (fsm.Version, error) {
	if !g.Leading() {
		return fsm.Version{}, g.orderError(raft.ErrNotLeader)
	}
	e := g.enforced()
	if !e.formed {
		return fsm.Version{}, fmt.Errorf("order the policy set: %w", errUnformed)
	}
	if err := e.judge(set, expected); err != nil {
		return fsm.Version{}, err
	}
	v := fsm.Version{Epoch: e.settings.Epoch, Number: e.version.Number + 1}
	if e.has(set) {
		if g.leased() {
			return e.version, nil
		}
		v = e.version // logged again it changes nothing, and proves that this replica still leads
	}
	canonical := set.Canonical()
	a, err := g.logged(ctx, func(h fsm.Header) []byte { return fsm.ChangeEntry(h, e.version, v, canonical) })
	switch {
	case err != nil:
		return fsm.Version{}, g.orderError(err)
	case a.Refusal == fsm.RefusedConflict, a.Refusal == fsm.RefusedSet: // something came in between
		return fsm.Version{}, g.reconsider(set, expected)
	case a.Refusal != fsm.Accepted:
		return fsm.Version{}, g.orderError(raft.ErrLeadershipLost)
	}
	return v, nil
}

// errUnformed says that a partition's settings aren't logged yet, which its leader does first.
var errUnformed = errors.New("the partition has no settings yet")

// reconsider says why a set was refused that seemed acceptable a moment ago.
func (g *Group) reconsider(set policy.Set, expected *fsm.Version) error {
	if err := g.CheckPolicies(set, expected); err != nil {
		return err
	}
	return ErrSetVersion
}

// orderError tells who leads, where somebody else does.
func (g *Group) orderError(err error) error {
	if errors.Is(err, raft.ErrNotLeader) {
		return fmt.Errorf("order the policy set: %w: %w", err, &NotLeaderError{Leader: g.leaderID()})
	}
	return fmt.Errorf("order the policy set: %w", err)
}

// AdoptPolicies brings a version into force that partition 0 has ordered, given in canonical form. It returns nil if
// that version, or a newer one, is in force. It fails with [policy.Problems] where usage couldn't go on under it, and
// as ChangePolicies does.
func (g *Group) AdoptPolicies(ctx context.Context, v fsm.Version, canonical []byte) error {
	e := g.enforced()
	if e.set != nil && !e.version.Before(v) {
		return nil
	}
	if !e.formed {
		return fmt.Errorf("adopt the policy set: %w", errUnformed)
	}
	// What no replica could compile would stop them all.
	set, err := policy.ParseCanonical(canonical)
	if err != nil {
		return fmt.Errorf("adopt the policy set: %w", err)
	}
	if _, err := policy.Compile(set); err != nil {
		return fmt.Errorf("adopt the policy set: %w", err)
	}
	if problems := e.current().FollowTo(set); len(problems) > 0 {
		return fmt.Errorf("adopt the policy set: %w", problems)
	}
	a, err := g.logged(ctx, func(h fsm.Header) []byte { return fsm.PoliciesEntry(h, v, canonical) })
	switch {
	case err != nil:
		return g.orderError(err)
	case a.Refusal == fsm.RefusedSet:
		return fmt.Errorf("adopt the policy set: %w", g.unfit(set))
	case a.Refusal == fsm.RefusedTerm:
		return g.orderError(raft.ErrLeadershipLost)
	}
	return nil // a conflict: a newer one came in between
}

// errTombstones says that a partition has to remember more deleted quotas than it has room for.
var errTombstones = errors.New("too many deleted quotas are remembered here")

// unfit says why this partition can't follow to a set.
func (g *Group) unfit(set policy.Set) error {
	e := g.enforced()
	if problems := e.current().FollowTo(set); len(problems) > 0 {
		return problems
	}
	return errTombstones
}

// SetPolicies brings a first policy set into force under that version. The set that is in force already is fine,
// another one is ErrOtherSet. It fails as AdoptPolicies does.
func (g *Group) SetPolicies(ctx context.Context, v fsm.Version, set policy.Set) error {
	if !g.Leading() {
		return g.orderError(raft.ErrNotLeader)
	}
	if _, err := policy.Compile(set); err != nil {
		return fmt.Errorf("policy set: %w", err)
	}
	e := g.enforced()
	if e.set == nil {
		if err := g.AdoptPolicies(ctx, v, set.Canonical()); err != nil {
			return err
		}
		e = g.enforced()
	}
	if !e.has(set) {
		return ErrOtherSet
	}
	return nil
}

// logged logs one entry and returns what applying it here came to.
func (g *Group) logged(ctx context.Context, build func(fsm.Header) []byte) (fsm.Applied, error) {
	type result struct {
		applied fsm.Applied
		err     error
	}
	results := make(chan result, 1)
	g.propose(build, func(a fsm.Applied, err error) { results <- result{a, err} })
	select {
	case r := <-results:
		return r.applied, r.err
	case <-ctx.Done():
		return fsm.Applied{}, ctx.Err()
	}
}
