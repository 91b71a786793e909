package node

import (
	"maps"
	"slices"
)

// place chooses the replicas of each partition: as many nodes as zones allow in different ones, every node
// about as often as any other, and first, as the leader, each in turn. It is a pure function of its arguments;
// its result is written down at genesis, so it may change later.
func place(members []Member, partitions, replication int) [][]string {
	ring := alternate(members)
	groups := make([][]string, partitions)
	for p := range groups {
		groups[p] = pick(ring, p%len(ring), replication)
	}
	return groups
}

// alternate orders members so that neighbours are in different zones where that can be.
func alternate(members []Member) (ring []Member) {
	byZone := map[string][]Member{}
	for _, m := range members {
		byZone[m.Zone] = append(byZone[m.Zone], m)
	}
	zones := slices.Sorted(maps.Keys(byZone))
	for i := 0; len(ring) < len(members); i++ {
		for _, zone := range zones {
			if i < len(byZone[zone]) {
				ring = append(ring, byZone[zone][i])
			}
		}
	}
	return ring
}

// pick takes n members from the ring, from first on: those of zones that are not used yet, then others.
func pick(ring []Member, first, n int) (ids []string) {
	used := map[string]bool{}
	for _, fresh := range []bool{true, false} {
		for i := range ring {
			m := ring[(first+i)%len(ring)]
			if len(ids) < n && !slices.Contains(ids, m.ID) && (!fresh || !used[m.Zone]) {
				ids, used[m.Zone] = append(ids, m.ID), true
			}
		}
	}
	return ids
}
