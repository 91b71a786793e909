package fsm

import (
	"math"

	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// quota is what the machine keeps of a (namespace, quota name) that policies
// charge. Its number is its place in the machine's list, for ever: keys and
// decision records name it.
type quota struct {
	namespace, name string
	domain          int32 // place in the machine's domains
	policy          int32 // place in the policy set
	// retention is how long the rolling log is kept; 0 = no rolling limit.
	retention int64
	precision int64
	// largest is the policy's largest amount: of a log's units beyond it the
	// oldest go early, and a marker stays.
	largest uint64
	// covering is a rolling limit whose window is the retention; -1 if none is.
	covering int8
	// known is the time since which every event is known.
	known int64
	// states maps a limit to its place among the key's states; -1 for a rolling one.
	states []int8
	// count is how many states a key has.
	count int
	// debts is how deep an unlimited charge may leave each limit in debt: a bucket at
	// its largest finite capacity, anything else as deep as it comes.
	debts []uint64
}

// domain is the accounting of one domain.
type domain struct {
	name  string
	bytes uint64
}

// adopt makes the quotas and domains of a first policy set: a quota's number is
// its policy's place.
func adopt(set *policy.Compiled) (quotas []quota, domains []domain) {
	for i := range set.Domains() {
		domains = append(domains, domain{name: set.DomainName(i)})
	}
	for i := range int32(set.Policies()) {
		quotas = append(quotas, newQuota(set, i))
	}
	return quotas, domains
}

func newQuota(set *policy.Compiled, i int32) quota {
	p := set.Policy(i)
	d, _ := set.Domain(p.Domain)
	q := quota{
		namespace: p.Namespace, name: p.Quota, policy: i,
		domain:    int32(d),
		retention: set.Retention(i),
		precision: set.Precision(i),
		largest:   set.LargestAmount(i),
		known:     limit.Forever,
		covering:  -1,
		states:    make([]int8, set.Limits(i)),
		debts:     make([]uint64, set.Limits(i)),
	}
	for l := range q.states {
		q.states[l], q.debts[l] = -1, mostDebt(p, p.Limits[l])
		switch {
		case p.Limits[l].Algorithm != limit.RollingWindow:
			q.states[l] = int8(q.count)
			q.count++
		case p.Limits[l].Window == q.retention:
			q.covering = int8(l)
		}
	}
	return q
}

// mostDebt is how deep an unlimited charge may leave a limit in debt. A bucket at its
// largest finite capacity, over the limit's own, the tiers' and the overrides', is empty
// whoever asks; units beyond that are forgotten, as those of a rolling log are. Or
// the debt would grow without end: the key could never be reclaimed, and on the day that
// it loses the tier it would be denied for years.
func mostDebt(p *policy.Policy, l policy.Limit) uint64 {
	if l.Algorithm != limit.TokenBucket {
		return limit.Unlimited // what these have used goes with their windows
	}
	most := l.Amount
	for _, rules := range [][]policy.Rule{p.Tiers, p.Overrides} {
		for _, r := range rules {
			for _, a := range r.Amounts {
				if a.Limit == l.Name { // an unlimited one has the amount 0
					most = max(most, a.Amount)
				}
			}
		}
	}
	return most
}

func (q *quota) rolling() bool { return q.retention > 0 }

// Logical bytes, by a formula that every replica computes alike, near to what
// the tables really use (TestLogicalBytesFollowRealBytes).
const (
	keyBytes   = 64 // of a key beside its values, states and events
	eventBytes = 8
)

func (q *quota) keyBytes(keyLen int) uint64 {
	return uint64(keyBytes + keyLen + q.count*stateBytes)
}

// second returns the whole second from which t has passed.
func second(t int64) uint32 {
	if t > (math.MaxUint32-1)*1e9 {
		return math.MaxUint32
	}
	return uint32((t + 1e9 - 1) / 1e9)
}

// after adds a length to a time, never past the last instant.
func after(t, length int64) int64 {
	if t > math.MaxInt64-length {
		return math.MaxInt64
	}
	return t + length
}

// deadline returns when a key holds nothing that counts any more.
func (q *quota) deadline(b block) int64 {
	at := b.idle()
	if !q.rolling() {
		return at
	}
	l := b.log()
	if last, ok := l.Last(); ok {
		at = max(at, after(last.Time, q.retention))
	}
	if m, ok := l.Marker(); ok {
		at = max(at, after(m, q.retention))
	}
	return at
}
