package fsm_test

import (
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

const (
	second = int64(time.Second)
	minute = int64(time.Minute)
	hour   = int64(time.Hour)
)

// A replica is a machine, the log that it was fed, and the habits of the leader
// that writes that log: it resolves checks with the policy set in force, stamps
// entries with its clock and names its term.
type replica struct {
	tb    testing.TB
	m     *fsm.Machine
	now   int64
	term  uint64
	v     fsm.Version // of the set in force
	index uint64
	log   []entry
	ids   uint64
}

type entry struct {
	index, term uint64
	data        []byte
}

// settings are what a test's partition has unless it asks for something else: one
// partition that owns every slot, and room for everything.
func settings() fsm.Settings {
	return fsm.Settings{
		Seed:       keyspace.Seed{'o', 'n', 'e', ' ', 's', 'e', 'e', 'd'},
		Partitions: 1, Epoch: version.Epoch, Horizon: fsm.DefaultHorizon, Bound: 1 << 40, DomainBound: 1 << 40,
	}
}

// newest is the level up to which the machines of tests go.
const newest = 4

// empty is a machine of an empty log.
func empty() *fsm.Machine { return fsm.New(fsm.UpTo(newest)) }

// start returns a replica in its first term, with its settings and policies.
func start(tb testing.TB, s fsm.Settings, policies ...policy.Policy) *replica {
	tb.Helper()
	r := &replica{tb: tb, m: empty(), v: version}
	r.lead()
	r.apply(fsm.SettingsEntry(r.header(), s))
	if a := r.apply(fsm.PoliciesEntry(r.header(), version, policy.Set{Policies: policies}.Canonical())); a.Refusal != fsm.Accepted {
		tb.Fatalf("the policies of this test are refused: %v", policy.Set{Policies: policies}.Validate())
	}
	return r
}

// version is that of a replica's first set.
var version = fsm.Version{Epoch: 1, Number: 1}

// order puts a set in the place of the one in force, as partition 0 does.
func (r *replica) order(s policy.Set) fsm.Refusal {
	r.tb.Helper()
	next := fsm.Version{Epoch: version.Epoch, Number: r.v.Number + 1}
	a := r.apply(fsm.ChangeEntry(r.header(), r.v, next, s.Canonical()))
	if a.Refusal == fsm.Accepted {
		r.v = next
	}
	return a.Refusal
}

// change puts policies in the place of those in force.
func (r *replica) change(policies ...policy.Policy) *replica {
	r.tb.Helper()
	if why := r.order(policy.Set{Policies: policies}); why != fsm.Accepted {
		set, _ := r.m.Set()
		r.tb.Fatalf("refusal %d: %v", why, set.Set().ChangeTo(policy.Set{Policies: policies}, r.m.Tombstones()))
	}
	return r
}

// lead begins a new term.
func (r *replica) lead() {
	r.term++
	r.apply(fsm.First(r.header()))
}

func (r *replica) header() fsm.Header { return fsm.Header{Time: r.now, Term: r.term, Seq: r.index} }

func (r *replica) apply(data []byte) fsm.Applied {
	r.tb.Helper()
	r.index++
	r.log = append(r.log, entry{r.index, r.term, slices.Clone(data)})
	a, err := r.m.Apply(r.index, r.term, data)
	if err != nil {
		r.tb.Fatalf("entry %d: %v", r.index, err)
	}
	return a
}

// at sets the leader's clock.
func (r *replica) at(now int64) *replica {
	r.now = now
	return r
}

func (r *replica) tick() { r.apply(fsm.Tick(r.header())) }

// settle ticks until nothing waits to be reclaimed, as an idle leader does.
func (r *replica) settle() {
	r.tb.Helper()
	for r.tick(); r.m.Due(); r.tick() {
	}
}

// check is a new question in the domain "default", under an id never used before.
func (r *replica) check(cost uint64, descriptors ...keyspace.Descriptor) *fsm.Check {
	r.tb.Helper()
	return r.checkIn("default", cost, descriptors...)
}

// late is a question that is sent in the very moment of the next entry, so that its
// fence isn't stale however far the clock has moved since the last one.
func (r *replica) late(cost uint64, descriptors ...keyspace.Descriptor) *fsm.Check {
	r.tb.Helper()
	c := r.check(cost, descriptors...)
	c.Fence = r.now
	return c
}

func (r *replica) checkIn(domain string, cost uint64, descriptors ...keyspace.Descriptor) *fsm.Check {
	r.tb.Helper()
	c, ok := r.resolve(domain, cost, descriptors)
	if !ok {
		r.tb.Fatalf("no policy of domain %q matches %v", domain, descriptors)
	}
	return c
}

func (r *replica) resolve(domain string, cost uint64, descriptors []keyspace.Descriptor) (*fsm.Check, bool) {
	set, _ := r.m.Set()
	s, _ := r.m.Settings()
	charges, outcome := set.ResolveCheck(nil, domain, descriptors, cost)
	if outcome != policy.Matched {
		return nil, false
	}
	d, _ := set.Domain(domain)
	c := &fsm.Check{ID: r.id(), Digest: s.Seed.Digest(domain, cost, descriptors), Fence: r.m.Now(), Domain: int32(d)}
	for _, ch := range charges {
		on := descriptors[ch.Descriptor]
		c.Charges = append(c.Charges, fsm.Charge{
			Policy: ch.Policy, Tier: ch.Tier, Override: ch.Override, Cost: ch.Cost,
			Slot: set.Slot(s.Seed, ch.Policy, on), Key: set.AppendKey(nil, ch.Policy, on),
		})
	}
	return c, true
}

func (r *replica) id() (id fsm.ID) {
	r.ids++
	binary.BigEndian.PutUint64(id[8:], r.ids)
	return id
}

// decide applies one batch and returns its answers.
func (r *replica) decide(checks ...*fsm.Check) []fsm.Answer {
	r.tb.Helper()
	a := r.apply(fsm.BatchEntry(r.header(), r.v, checks))
	if a.Refusal != fsm.Accepted || len(a.Answers) != len(checks) {
		r.tb.Fatalf("a batch of %d checks got refusal %d and %d answers", len(checks), a.Refusal, len(a.Answers))
	}
	return slices.Clone(a.Answers)
}

// ask decides one check alone.
func (r *replica) ask(c *fsm.Check) fsm.Answer {
	r.tb.Helper()
	return r.decide(c)[0]
}

// want asks and demands the verdict.
func (r *replica) want(v fsm.Verdict, c *fsm.Check) fsm.Answer {
	r.tb.Helper()
	a := r.ask(c)
	if a.Verdict != v {
		r.tb.Fatalf("at %v: verdict %s, want %s", time.Duration(r.m.Now()), words[a.Verdict], words[v])
	}
	return a
}

var words = map[fsm.Verdict]string{
	fsm.VerdictAllow: "allow", fsm.VerdictDeny: "deny", fsm.VerdictConflict: "conflict",
	fsm.VerdictStaleTime: "stale time", fsm.VerdictMemory: "no memory", fsm.VerdictNotOwned: "not owned",
}

// desc is the descriptor of entries written "name=value".
func desc(entries ...string) keyspace.Descriptor {
	var list []keyspace.Entry
	for _, e := range entries {
		name, value, _ := strings.Cut(e, "=")
		list = append(list, keyspace.Entry{Name: name, Value: value})
	}
	d, err := keyspace.NewDescriptor(list)
	if err != nil {
		panic(err)
	}
	return d
}

// perUser is a policy with one allowance per user.
func perUser(limits ...policy.Limit) policy.Policy {
	return policy.Policy{Name: "p", Key: []string{"user"}, Limits: limits}
}

func rolling(n uint64, window int64) policy.Limit {
	return policy.Limit{Name: "rolling", Algorithm: limit.RollingWindow, Amount: n, Window: window}
}

func bucket(capacity, refill uint64, period int64) policy.Limit {
	return policy.Limit{Name: "bucket", Algorithm: limit.TokenBucket, Amount: capacity, Refill: refill, Window: period}
}

func named(name string, l policy.Limit) policy.Limit {
	l.Name = name
	return l
}

// choices is where random histories come from.
type choices struct{ *rand.Rand }

func seeded(seed uint64) choices { return choices{rand.New(rand.NewPCG(seed, 0xf5))} }

func (c choices) oneIn(n int) bool { return c.IntN(n) == 0 }

func pick[T any](c choices, from ...T) T { return from[c.IntN(len(from))] }

var seedFlag = flag.Uint64("seed", 0, "seed of the first random history; 0 picks one")

// eachSeed runs f on n seeds. A failure names the seed with which the same history
// can be played again.
func eachSeed(t *testing.T, n int, f func(t *testing.T, seed uint64)) {
	t.Helper()
	first := *seedFlag
	if first == 0 {
		first = rand.Uint64()
	}
	for seed := first; seed != first+uint64(n); seed++ {
		if f(t, seed); t.Failed() {
			t.Fatalf("replay with -run '^%s$' -seed=%d", t.Name(), seed)
		}
	}
}
