package node

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/partition"
)

// newRandom is seeded by SEED, or by the time; a failed test prints it.
func newRandom(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("SEED"); given != "" {
		n, err := strconv.ParseUint(given, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("SEED=%d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

func start(number, term, index uint64) partition.Start {
	return partition.Start{Number: number, Term: term, Index: index}
}

func emptyNotes(t *testing.T) *notes {
	t.Helper()
	n, err := readNotes(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A start counts only if it comes after all that was seen of the replica, or is the same one again, further on.
func TestAStartThatIsBehindIsRefused(t *testing.T) {
	const id = "a-0000000000000001"
	for _, tc := range []struct {
		name  string
		start partition.Start
		run   uint64
		ok    bool
	}{
		{"the next", start(4, 2, 9), 2, true},
		{"one after a few that nobody heard of", start(9, 3, 1), 2, true},
		{"the same again", start(3, 2, 9), 1, true},
		{"the same, further on", start(3, 2, 10), 1, true},
		{"the same number of another process", start(3, 2, 10), 2, false},
		{"an older number", start(2, 2, 10), 2, false},
		{"the next, with fewer entries", start(4, 2, 8), 2, false},
		{"the next, with entries of an older term", start(4, 1, 99), 2, false},
		{"the same, with fewer entries", start(3, 2, 8), 1, false},
	} {
		n := emptyNotes(t)
		if err := n.hear([]sight{{id, 0, start(3, 2, 9), 1}}); err != nil {
			t.Fatal(err)
		}
		err := n.hear([]sight{{id, 1, start(1, 1, 1), tc.run}, {id, 0, tc.start, tc.run}})
		if ok := err == nil; ok != tc.ok || !ok && !errors.Is(err, partition.ErrRewound) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if refused := len(n.all()) == 1; refused == tc.ok {
			t.Errorf("%s: %d replicas are noted; a start is heard whole or not at all", tc.name, len(n.all()))
		}
	}
}

// New starts are on disk when they have been heard; how far a start has come is at the end.
func TestNotesSurviveTheProcess(t *testing.T) {
	n := emptyNotes(t)
	first := []sight{{"a-0000000000000001", 0, start(1, 1, 1), 7}, {"b-0000000000000002", 3, start(2, 5, 6), 8}}
	if err := n.hear(first); err != nil {
		t.Fatal(err)
	}
	again, err := readNotes(n.folder)
	if err != nil || !slices.Equal(again.all(), first) {
		t.Errorf("read back %v, %v", again.all(), err)
	}
	first[0].Start.Index = 9
	if err := n.hear(first[:1]); err != nil {
		t.Fatal(err)
	}
	if err := n.flush(); err != nil {
		t.Fatal(err)
	}
	again, err = readNotes(n.folder)
	if err != nil || !slices.Equal(again.all(), first) {
		t.Errorf("read back %v, %v", again.all(), err)
	}
}

// What is known never becomes less, in whichever order it is told.
func TestNotesNeverGoBack(t *testing.T) {
	random := newRandom(t)
	const id = "a-0000000000000001"
	for range 200 {
		n := emptyNotes(t)
		var most partition.Start
		for range 10 {
			s := start(random.Uint64N(4), random.Uint64N(3), random.Uint64N(5))
			most = most.Later(s)
			if err := n.merge([]sight{{id, 0, s, 1 + random.Uint64N(3)}}); err != nil {
				t.Fatal(err)
			}
			if got := n.all()[0].Start; got != most {
				t.Fatalf("got %+v, want %+v", got, most)
			}
		}
	}
}

// Replicas are spread: over as many zones as there are, over all nodes alike, and so are those that lead.
func TestPlacementIsSpread(t *testing.T) {
	for _, tc := range []struct {
		zones                   []string // of each node
		partitions, replication int
		over                    int // zones that each partition is in
	}{
		{[]string{"", "", ""}, 3, 3, 1},
		{[]string{"x", "y", "z"}, 3, 3, 3},
		{[]string{"x", "x", "y", "y", "z", "z"}, 6, 3, 3},
		{[]string{"x", "x", "x", "y", "y", "y"}, 12, 3, 2},
		{[]string{"x", "x", "x", "x", "y", "z"}, 6, 3, 3},
		{[]string{"x", "y", "z", "x", "y", "z", "x"}, 14, 5, 3},
		{[]string{"", "", "", "", ""}, 1, 5, 1},
	} {
		var members []Member
		zoneOf := map[string]string{}
		for i, zone := range tc.zones {
			id := "n" + strconv.Itoa(i) + "-0000000000000001"
			members = append(members, Member{ID: id, Zone: zone})
			zoneOf[id] = zone
		}
		leads, hosts := map[string]int{}, map[string]int{}
		for p, group := range place(members, tc.partitions, tc.replication) {
			zones := map[string]bool{}
			for _, id := range group {
				zones[zoneOf[id]] = true
				hosts[id]++
			}
			leads[group[0]]++
			if len(group) != tc.replication || len(zones) != tc.over || len(slices.Compact(slices.Sorted(slices.Values(group)))) != len(group) {
				t.Errorf("%v: partition %d is %v", tc, p, group)
			}
		}
		most, least := slices.Max(slices.Collect(maps.Values(leads))), tc.partitions/len(members)
		if most > least+1 {
			t.Errorf("%v: one node leads %d of %d partitions", tc, most, tc.partitions)
		}
		if evenZones := len(slices.Compact(slices.Sorted(slices.Values(tc.zones)))); len(tc.zones)%evenZones == 0 && tc.partitions%len(members) == 0 &&
			!slices.Equal(tc.zones, []string{"x", "x", "x", "x", "y", "z"}) {
			for id, n := range hosts {
				if want := tc.partitions * tc.replication / len(members); n < want-1 || n > want+1 {
					t.Errorf("%v: node %s has %d replicas, about %d would be even", tc, id, n, want)
				}
			}
		}
	}
}
