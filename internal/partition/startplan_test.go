package partition_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/partition"
)

// The states below are written as words, one per replica a, b, c, ...:
//
//	missing          no folder
//	blank            an identity
//	blank!           an identity that no document names (another disk)
//	doc              and the genesis document
//	doc+1            and the founding entry
//	doc2, doc2+1     another document
//	doc!             a document that doesn't name this identity
//	formed           took part in a working group, with the document
//	formed!          likewise, and joined after the genesis: the document doesn't name it
//	formed2          likewise, with another document
//	formed-          likewise, and lost the document
//	damaged          lost its log, or can't be read
//	formed@S/T/I     took part, at start S with entry I of term T; plain is 2/2/9
//
// where a word may end in >x@S/T/I: its folder knows x at start S with entry I of term T,
//
// and the plan as "bootstrap" (a new genesis), "continue" (the one that was begun) or "start", then
// who starts, then who awaits replacement.
func TestPlanStart(t *testing.T) {
	for _, tc := range []struct {
		states string
		plan   string
		err    error
	}{
		// A fresh cluster.
		{"missing missing missing", "bootstrap abc", nil},
		{"blank missing blank", "bootstrap abc", nil},
		{"blank blank blank", "bootstrap abc", nil},
		{"missing", "bootstrap a", nil},

		// A process died in its genesis: while the documents were written,
		{"doc blank blank", "continue abc", nil},
		{"blank doc doc", "continue abc", nil},
		{"doc doc doc", "continue abc", nil},
		// while the founding entries were,
		{"doc+1 doc doc", "continue abc", nil},
		{"doc doc+1 doc+1", "continue abc", nil},
		// or before anything was decided.
		{"doc+1 doc+1 doc+1", "continue abc", nil},
		{"doc+1", "continue a", nil},

		// Nothing was decided, but a disk is not the one that the document names: it might have known
		// better, so a person must say that it did not.
		{"doc blank! blank", "", partition.ErrForeignReplica},
		{"doc missing doc", "", partition.ErrForeignReplica},
		{"doc blank!", "", partition.ErrForeignReplica},
		{"doc! doc doc", "", partition.ErrForeignReplica},
		{"doc! doc formed", "", partition.ErrForeignReplica},

		// A founding entry proves that all had the document: who lacks it has lost its disk.
		{"doc+1 blank doc+1", "start ac, awaiting b", nil},
		{"doc+1 blank! doc+1", "start ac, awaiting b", nil},
		{"doc+1 missing doc", "start a, awaiting bc", nil},

		// A group at work.
		{"formed formed formed", "start abc", nil},
		{"formed doc+1 formed", "start abc", nil},
		{"formed! formed formed", "start abc", nil},
		{"formed", "start a", nil},
		// A lost disk never votes.
		{"formed formed missing", "start ab, awaiting c", nil},
		{"formed blank! formed", "start ac, awaiting b", nil},
		{"formed blank formed", "start ac, awaiting b", nil},
		{"formed doc formed", "start ac, awaiting b", nil},
		{"formed damaged formed", "start ac, awaiting b", nil},
		{"formed damaged missing", "start a, awaiting bc", nil},
		// Where nobody has the log, nobody can tell what was decided.
		{"damaged damaged damaged", "", partition.ErrLogLost},
		{"doc+1 damaged doc+1", "", partition.ErrLogLost},
		{"missing damaged missing", "", partition.ErrLogLost},
		// Two lost disks: no majority, and none is made up.
		{"formed missing missing", "start a, awaiting bc", nil},
		{"blank formed blank", "start b, awaiting ac", nil},
		{"doc+1 formed missing", "start ab, awaiting c", nil},

		// An old copy of a disk is a lost disk, whoever knows better: by the number of its start,
		{"formed@1/2/9 formed>a@2/2/9 formed", "start bc, awaiting a", nil},
		{"formed@1/2/9 missing formed>a@2/2/9", "start c, awaiting ab", nil},
		// by an entry that it held, whose term goes before its index,
		{"formed formed>a@2/2/10 formed", "start bc, awaiting a", nil},
		{"formed@2/3/8 formed>a@2/2/9 formed", "start abc", nil},
		{"formed@2/2/99 formed>a@2/3/7 formed", "start bc, awaiting a", nil},
		// also where only its own folder knows,
		{"formed@1/2/9>a@2/2/9 formed formed", "start bc, awaiting a", nil},
		// and it knows nothing of others that they don't know better.
		{"formed@1/2/9>b@1/2/9 formed>a@2/2/9>b@2/2/9 formed>a@2/2/9", "start bc, awaiting a", nil},
		// Old copies everywhere: nobody can tell what was decided.
		{"formed@1/2/9>b@2/2/9 formed@1/2/9>a@2/2/9 missing", "", partition.ErrRewound},
		{"doc+1>b@2/2/9 doc+1 doc+1", "", partition.ErrRewound},

		// Documents that differ.
		{"doc doc2 doc", "", partition.ErrGenesisDiffers},
		{"doc+1 doc+1 doc2+1", "", partition.ErrGenesisDiffers},
		{"formed formed formed2", "", partition.ErrGenesisDiffers},
		{"formed doc2 missing", "", partition.ErrGenesisDiffers},
		// A document that is gone.
		{"formed formed- formed", "", partition.ErrGenesisLost},
		{"formed- missing missing", "", partition.ErrGenesisLost},

		{"", "", partition.ErrNoReplicas},
	} {
		t.Run(tc.states, func(t *testing.T) {
			states := readStates(t, tc.states)
			plan, err := partition.PlanStart(states)
			if !errors.Is(err, tc.err) {
				t.Fatalf("got %v, want %v", err, tc.err)
			}
			if err == nil && printPlan(plan) != tc.plan {
				t.Errorf("got %q, want %q", printPlan(plan), tc.plan)
			}
		})
	}
}

func TestPlanStartNamesWhoDiffers(t *testing.T) {
	for states, names := range map[string][]string{
		"formed formed formed2": {"of b and of c"}, // neighbours in the list
		"doc blank! blank":      {"b;", "a-01, b-02, c-03"},
		"formed formed- formed": {": b"},
	} {
		_, err := partition.PlanStart(readStates(t, states))
		for _, name := range names {
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v doesn't say %q", states, err, name)
			}
		}
	}
}

func TestPlanStartRefusesOtherReplicasThanTheGenesisHas(t *testing.T) {
	for _, states := range []string{"doc doc", "doc+1 doc+1"} {
		three := readStates(t, states+" doc")
		if _, err := partition.PlanStart(three[:2]); !errors.Is(err, partition.ErrForeignReplica) {
			t.Errorf("two replicas of a genesis of three: %v", err)
		}
	}
	twice := readStates(t, "formed formed")
	twice[1].Name = "a"
	if _, err := partition.PlanStart(twice); err == nil {
		t.Error("one name for two replicas was accepted")
	}
}

// Every combination of three: whatever the folders show, nothing is founded once a replica shows
// that a group was at work, who lost its log never starts, and nobody is both started and awaited.
func TestPlanStartNeverFoundsOverAWorkingGroup(t *testing.T) {
	words := []string{"missing", "blank", "blank!", "doc", "doc+1", "doc2", "doc2+1", "doc!", "formed", "formed!", "formed2", "formed-"}
	for _, a := range words {
		for _, b := range words {
			for _, c := range words {
				line := a + " " + b + " " + c
				states := readStates(t, line)
				plan, err := partition.PlanStart(states)
				if err != nil {
					if plan.Bootstrap || plan.Start != nil {
						t.Errorf("%s: a plan beside %v", line, err)
					}
					continue
				}
				checkPlan(t, line, states, plan)
			}
		}
	}
}

func checkPlan(t *testing.T, line string, states []partition.State, plan partition.StartPlan) {
	t.Helper()
	for _, s := range states {
		starts, awaits := slices.Contains(plan.Start, s.Name), slices.Contains(strings.Split(awaitingNames(plan), ""), s.Name)
		switch {
		case starts == awaits:
			t.Errorf("%s: %s neither or both started and awaited", line, s.Name)
		case plan.Bootstrap && s.Condition == partition.Formed:
			t.Errorf("%s: founded over %s", line, s.Name)
		case !plan.Bootstrap && starts && s.LastIndex == 0:
			t.Errorf("%s: %s starts without a log", line, s.Name)
		}
	}
}

func readStates(t *testing.T, line string) (states []partition.State) {
	t.Helper()
	words := strings.Fields(line)
	documents := map[string]*partition.Genesis{}
	for _, number := range []string{"", "2"} {
		var ids []string
		for i := range words {
			ids = append(ids, serverID(i))
		}
		g := partition.NewGenesis(1, ids)
		documents[number] = &g
	}
	for i, word := range words {
		s := partition.State{Name: string(rune('a' + i)), ServerID: serverID(i)}
		if strings.HasSuffix(word, "!") {
			s.ServerID = s.Name + "-99"
			word = strings.TrimSuffix(word, "!")
		}
		word, known, _ := strings.Cut(word, ">")
		for _, k := range strings.FieldsFunc(known, func(r rune) bool { return r == '>' }) {
			if s.Peers == nil {
				s.Peers = map[string]partition.Start{}
			}
			s.Peers[serverID(int(k[0]-'a'))] = readStart(t, k[2:])
		}
		word, at, found := strings.Cut(word, "@")
		if !found {
			at = "2/2/9"
		}
		switch word {
		case "missing":
			s.ServerID = ""
		case "blank":
			s.Condition = partition.Blank
		case "doc", "doc2":
			s.Condition, s.Genesis = partition.Fresh, documents[word[3:]]
		case "doc+1", "doc2+1":
			s.Condition, s.Genesis, s.LastIndex = partition.Fresh, documents[strings.Trim(word, "doc+1")], 1
		case "formed", "formed2":
			s.Condition, s.Genesis, s.LastIndex = partition.Formed, documents[word[6:]], 9
			s.Start = readStart(t, at)
		case "damaged":
			s.Condition, s.Damage = partition.Damaged, partition.ErrLogLost
		case "formed-":
			s.Condition, s.LastIndex = partition.Formed, 9
		default:
			t.Fatalf("no such state: %q", word)
		}
		states = append(states, s)
	}
	return states
}

func readStart(t *testing.T, word string) (s partition.Start) {
	t.Helper()
	if _, err := fmt.Sscanf(word, "%d/%d/%d", &s.Number, &s.Term, &s.Index); err != nil {
		t.Fatalf("%q: %v", word, err)
	}
	return s
}

func serverID(i int) string { return fmt.Sprintf("%c-%02d", 'a'+i, i+1) }

func printPlan(p partition.StartPlan) string {
	s := "start"
	if p.Bootstrap && p.Genesis == nil {
		s = "bootstrap"
	} else if p.Bootstrap {
		s = "continue"
	}
	s += " " + strings.Join(p.Start, "")
	if len(p.Awaiting) > 0 {
		s += ", awaiting " + awaitingNames(p)
	}
	return s
}

func awaitingNames(p partition.StartPlan) (names string) {
	for _, a := range p.Awaiting {
		names += a.Name
	}
	return names
}
