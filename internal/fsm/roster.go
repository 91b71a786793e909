package fsm

import (
	"crypto/sha256"
	"slices"

	"github.com/quorate/quorate/internal/policy"
)

// roster says who is who: the quotas and domains by their numbers, which last, and which of them the policy set in
// force means by its places, which change with every set. A roster never changes; a switch makes a new one, so a
// snapshot can go on with the old.
type roster struct {
	quotas  []quota  // by number; those without a name are free
	domains []string // by number; an empty one is free
	numbers []uint32 // of the quota at each place of the set
	within  []int32  // the number of the domain at each of its places; -1: none, no policy names it
}

// tally is what changes of a quota as it is charged.
type tally struct {
	named uint64 // how many keys and records name it
	cut   int64  // when an unlimited charge was last cut down to the largest capacity
}

const neverCut = -1

func newTally() tally { return tally{cut: neverCut} }

// account adds to the logical bytes of a quota's domain and of the partition.
func (m *Machine) account(q *quota, bytes int64) {
	m.bytes += uint64(bytes)
	m.domainBytes[q.domain] += uint64(bytes)
}

// enter accounts for a key or a record of a quota, leave for one that goes.
func (m *Machine) enter(q *quota, bytes uint64) {
	m.account(q, int64(bytes))
	m.tallies[q.number].named++
}

func (m *Machine) leave(q *quota, bytes uint64) {
	m.account(q, -int64(bytes))
	m.tallies[q.number].named--
}

// domainOf is the number of a quota's domain.
func (m *Machine) domainOf(quota uint32) int32 { return m.roster.quotas[quota].domain }

// reassign returns the roster that goes with a set. A policy takes the quota that it had, or one that was deleted and
// was kept alike; else it gets the lowest number that is free. Quotas without a policy are buried; those that nothing
// names any more make room first. The machine is left as it is.
func (m *Machine) reassign(set *policy.Compiled) roster {
	r := roster{quotas: slices.Clone(m.roster.quotas), domains: slices.Clone(m.roster.domains)}
	for n := range r.quotas {
		if m.lapsed(&r.quotas[n]) {
			r.quotas[n] = quota{}
		}
	}
	here, domains := r.byName(), r.census()
	free := 0
	for i := range int32(set.Policies()) {
		f := set.Policy(i).Frame()
		n, cut := r.find(here[[2]string{f.Namespace, f.Quota}], &f), int64(neverCut)
		if n < 0 {
			n = r.add(&f, r.domain(domains, f.Domain), &free)
		} else {
			cut = m.tallies[n].cut
		}
		r.quotas[n] = r.quotas[n].under(set, i, m.now, cut)
		r.numbers = append(r.numbers, uint32(n))
	}
	m.bury(&r)
	return r.finish(set)
}

// byName lists the numbers of the quotas of each name, in order.
func (r *roster) byName() map[[2]string][]int {
	here := make(map[[2]string][]int, len(r.quotas))
	for n := range r.quotas {
		if q := &r.quotas[n]; q.name != "" {
			name := [2]string{q.namespace, q.name}
			here[name] = append(here[name], n)
		}
	}
	return here
}

// find returns which of the quotas of one name goes on with the frame: the one that has a policy, or a buried one that
// was kept alike; -1: none.
func (r *roster) find(numbers []int, f *policy.Frame) int {
	for _, n := range numbers {
		if g := r.quotas[n].grave; g == nil || g.Equal(f) {
			return n
		}
	}
	return -1
}

// add gives a new quota the lowest free number, which is at least *free.
func (r *roster) add(f *policy.Frame, domain int32, free *int) int {
	for *free < len(r.quotas) && r.quotas[*free].name != "" {
		*free++
	}
	n := *free
	if n == len(r.quotas) {
		r.quotas = append(r.quotas, quota{})
	}
	r.quotas[n] = quota{number: uint32(n), namespace: f.Namespace, name: f.Quota, domain: domain, frame: newFrame(f)}
	return n
}

// census frees the numbers of domains that no quota is in, and finds the others by name. Under the empty name is the
// first that may be free.
func (r *roster) census() map[string]int32 {
	used := make([]bool, len(r.domains))
	for n := range r.quotas {
		if r.quotas[n].name != "" {
			used[r.quotas[n].domain] = true
		}
	}
	at := map[string]int32{}
	for d, name := range r.domains {
		if used[d] {
			at[name] = int32(d)
		} else {
			r.domains[d] = ""
		}
	}
	return at
}

// domain returns the number of a domain: its own, else the lowest free one.
func (r *roster) domain(at map[string]int32, name string) int32 {
	if n, ok := at[name]; ok {
		return n
	}
	n := at[""]
	for int(n) < len(r.domains) && r.domains[n] != "" {
		n++
	}
	if int(n) == len(r.domains) {
		r.domains = append(r.domains, "")
	}
	r.domains[n] = name
	at[""], at[name] = n+1, n
	return n
}

// graves counts the quotas that were deleted and are remembered.
func (r *roster) graves() (n int) {
	for i := range r.quotas {
		if r.quotas[i].grave != nil {
			n++
		}
	}
	return n
}

// finish fills in what follows from the rest.
func (r *roster) finish(set *policy.Compiled) roster {
	for len(r.quotas) > 0 && r.quotas[len(r.quotas)-1].name == "" {
		r.quotas = r.quotas[:len(r.quotas)-1]
	}
	for len(r.domains) > 0 && r.domains[len(r.domains)-1] == "" {
		r.domains = r.domains[:len(r.domains)-1]
	}
	r.within = make([]int32, set.Domains())
	for i := range r.within {
		r.within[i] = -1
	}
	for d, name := range r.domains {
		if i, ok := set.Domain(name); ok {
			r.within[i] = int32(d)
		}
	}
	for n := range r.quotas {
		q := &r.quotas[n]
		sum := sha256.Sum256(q.append(nil))
		q.sum = leWord(sum[:])
	}
	return *r
}

// install puts a roster in the place of the machine's, with the accounting that goes with it.
func (m *Machine) install(r roster) {
	for n := range m.roster.quotas {
		q := &m.roster.quotas[n]
		if m.lapsed(q) {
			m.tallies[n] = newTally()
		}
		m.accountGrave(q, -1)
	}
	m.tallies = resized(m.tallies, len(r.quotas), newTally())
	m.domainBytes = resized(m.domainBytes, len(r.domains), 0)
	for n := range r.quotas {
		m.accountGrave(&r.quotas[n], 1)
	}
	m.roster = r
}

// resized is a copy of the list with n entries, those that are new filled.
func resized[T any](list []T, n int, fill T) []T {
	out := make([]T, n)
	for i := copy(out, list); i < n; i++ {
		out[i] = fill
	}
	return out
}
