package partition

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Condition is what a replica's folder shows before Raft starts on it.
type Condition uint8

const (
	// Missing: no folder, or an empty one.
	Missing Condition = iota
	// Blank: an identity, and nothing else.
	Blank
	// Fresh: a genesis document, and no entry beyond the founding configuration at index 1.
	Fresh
	// Formed: it took part in a group that was at work: an entry beyond the founding one, a
	// snapshot, or a term that only a running group can have reached.
	Formed
	// Damaged: it took part, or may have, and what it promised is not all there: a log lost beside
	// its snapshots, an old copy, or a folder that can't be read. State.Damage says what.
	Damaged
)

// String is the condition in a word.
func (c Condition) String() string {
	return [...]string{"missing", "blank", "fresh", "formed", "damaged"}[c]
}

// State is what [Inspect] found of one replica.
type State struct {
	Name      string
	Condition Condition
	ServerID  string   // empty when missing
	Genesis   *Genesis // nil when there is no document
	LastIndex uint64   // of its log; 0 or 1 when fresh
	Start     Start    // its own number and newest entry
	Peers     map[string]Start
	Damage    error // when damaged
}

// StartPlan says which replicas may start. The others' Raft is not even opened: a disk that forgot
// its votes must not vote.
type StartPlan struct {
	// Bootstrap: found the group. Write the document and the founding entry wherever either is
	// missing, all of them before the first replica starts.
	Bootstrap bool
	// Genesis is the group's document; nil when Bootstrap asks for a new one.
	Genesis *Genesis
	// Start names the replicas to start.
	Start []string
	// Awaiting are the replicas that stay out until they are replaced under a new identity.
	Awaiting []Awaiting
}

// Awaiting is a replica that stays out.
type Awaiting struct {
	Name string
	Why  error
}

var (
	// ErrNoReplicas says that there is nothing to start.
	ErrNoReplicas = errors.New("no replicas")
	// ErrForeignReplica says that a replica isn't the one that the genesis document names.
	ErrForeignReplica = errors.New("replica is not the one that the genesis document names")
	// ErrLogLost says that a replica's log, with its votes, is gone or older than its snapshots.
	ErrLogLost = errors.New("the log is lost beside its snapshots")
	// ErrGenesisLost says that a replica holds entries but no genesis document.
	ErrGenesisLost = errors.New("replica holds entries but no genesis document")
	// ErrBlank says that a replica's disk is missing or holds nothing in a group that was at work.
	ErrBlank = errors.New("the disk is missing or blank")
)

// PlanStart decides, from the folders of all the replicas of a group, whether the group is founded,
// goes on being founded, or starts as it is. It never founds one where something may have been
// decided before:
//
//   - a replica that took part in a working group proves that the genesis is over;
//   - a damaged replica awaits replacement where another one has its log, and else keeps all from
//     starting;
//   - a replica that is behind what any folder knows of it is damaged: an old copy was put back;
//   - a founding entry on some replicas proves that the document had reached all of them, so one
//     without it has lost its disk;
//   - where every replica holds the document and no entry beyond the founding one, nothing was
//     decided, since that would be on a majority of these disks: the genesis goes on.
//
// It is a pure function.
func PlanStart(states []State) (StartPlan, error) {
	document, err := sharedGenesis(states)
	if err != nil {
		return StartPlan{}, err
	}
	states = findRewound(states)
	switch count := countConditions(states); {
	case count[Damaged] > 0 && count[Formed] == 0:
		return StartPlan{}, damage(states)
	case document == nil && count[Formed] == 0:
		return StartPlan{Bootstrap: true, Start: names(states)}, nil
	case count[Formed] > 0 || count[Fresh] < len(states) && anyFounded(states):
		return startFounded(states, document), nil
	default:
		return continueGenesis(states, document)
	}
}

// sharedGenesis returns the one document that the replicas hold, nil where none holds one.
func sharedGenesis(states []State) (*Genesis, error) {
	if len(states) == 0 {
		return nil, ErrNoReplicas
	}
	holder := -1
	for i, s := range states {
		if j := slices.IndexFunc(states, func(o State) bool { return o.Name == s.Name }); j != i {
			return nil, fmt.Errorf("replica %s is named twice", s.Name)
		}
		switch {
		case s.Genesis == nil && s.Condition == Formed:
			return nil, fmt.Errorf("%w: %s", ErrGenesisLost, s.Name)
		case s.Genesis == nil:
			continue
		case s.Condition == Fresh && !s.Genesis.Names(s.ServerID):
			return nil, fmt.Errorf("%w: %s is %s", ErrForeignReplica, s.Name, s.ServerID)
		case holder >= 0 && !s.Genesis.Equal(*states[holder].Genesis):
			return nil, fmt.Errorf("%w: of %s and of %s", ErrGenesisDiffers, states[holder].Name, s.Name)
		}
		holder = i
	}
	if holder < 0 {
		return nil, nil
	}
	return states[holder].Genesis, nil
}

// startFounded starts what holds its part of the log, and nothing else.
func startFounded(states []State, document *Genesis) StartPlan {
	plan := StartPlan{Genesis: document}
	for _, s := range states {
		if s.Condition == Formed || s.Condition == Fresh && s.LastIndex > 0 {
			plan.Start = append(plan.Start, s.Name)
		} else {
			plan.Awaiting = append(plan.Awaiting, Awaiting{s.Name, cmp.Or(s.Damage, ErrBlank)})
		}
	}
	return plan
}

// continueGenesis goes on with a genesis in which nothing was decided. Every replica must be the very
// one that the document names: another disk in its place may be the one that knew better.
func continueGenesis(states []State, document *Genesis) (StartPlan, error) {
	var foreign []string
	for _, s := range states {
		if !document.Names(s.ServerID) {
			foreign = append(foreign, s.Name)
		}
	}
	if len(foreign) > 0 {
		return StartPlan{}, fmt.Errorf("%w: %s; the document names %s", ErrForeignReplica,
			strings.Join(foreign, ", "), strings.Join(document.Replicas, ", "))
	}
	if len(states) != len(document.Replicas) {
		return StartPlan{}, fmt.Errorf("%w: %d replicas are configured, the document names %d",
			ErrForeignReplica, len(states), len(document.Replicas))
	}
	return StartPlan{Bootstrap: true, Genesis: document, Start: names(states)}, nil
}

// damage says why nothing can start: without a replica that has its log nobody can tell what was
// decided.
func damage(states []State) error {
	var all []error
	for _, s := range states {
		if s.Condition == Damaged {
			all = append(all, fmt.Errorf("replica %s: %w", s.Name, s.Damage))
		}
	}
	return errors.Join(all...)
}

func anyFounded(states []State) bool {
	return slices.ContainsFunc(states, func(s State) bool { return s.LastIndex > 0 })
}

func countConditions(states []State) (count [Damaged + 1]int) {
	for _, s := range states {
		count[s.Condition]++
	}
	return count
}

func names(states []State) (all []string) {
	for _, s := range states {
		all = append(all, s.Name)
	}
	return all
}
