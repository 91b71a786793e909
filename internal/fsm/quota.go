package fsm

import (
	"math"

	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// quota is what the machine keeps of a (namespace, quota name) that policies
// charge. Its number is its place in the roster, as long as anything of it is
// remembered: keys and decision records name it. It changes only where sets do.
type quota struct {
	number          uint32
	namespace, name string // no name: the number is free
	domain          int32  // its number
	policy          int32  // place in the policy set; -1: the policy was deleted
	grave           *grave // of one that was

	frame
	// largest is the policy's largest amount: of a log's units beyond it the
	// oldest go early, and a marker stays.
	largest uint64
	// debts is how deep an unlimited charge may leave each limit in debt: a bucket at
	// its largest finite capacity, anything else as deep as it comes.
	debts []uint64
	// held says which limits aren't as large as the set says yet; nil: none.
	held []hold
	// sum stands for all of this in the state hash.
	sum uint64
}

// frame is how the keys of a quota are kept. It is the same for every policy that
// ever has the quota, as long as anything of it is remembered.
type frame struct {
	// retention is how long the rolling log is kept; 0 = no rolling limit.
	retention int64
	precision int64
	// covering is a rolling limit whose window is the retention; -1 if none is.
	covering int8
	// known is the time since which every event is known.
	known int64
	// states maps a limit to its place among the key's states; -1 for a rolling one.
	states []int8
	// count is how many states a key has.
	count int
}

func newFrame(p *policy.Frame) frame {
	f := frame{retention: p.KeepHistory, known: limit.Forever, covering: -1, states: make([]int8, len(p.Limits))}
	for i, l := range p.Limits {
		f.states[i], f.precision = -1, max(f.precision, l.Precision)
		switch {
		case l.Algorithm != limit.RollingWindow:
			f.states[i] = int8(f.count)
			f.count++
		case l.Window == f.retention:
			f.covering = int8(i)
		}
	}
	return f
}

// hold keeps a bucket at the size that it had. What an unlimited charge took beyond
// the largest capacity was let go, so under a larger one the bucket would seem to
// have room that was used: until the larger one would be full again, it isn't there.
type hold struct {
	most  uint64 // capacity
	until int64
}

// active reports whether h still bounds a capacity at now.
func (h hold) active(now int64) bool { return now < h.until }

// under is the quota as the policy at a place of the set has it from now on. cut is
// when an unlimited charge was last cut down to the largest capacity, if it ever was.
func (q quota) under(set *policy.Compiled, place int32, now, cut int64) quota {
	p := set.Policy(place)
	before := q.debts
	q.policy, q.grave, q.largest = place, nil, set.LargestAmount(place)
	q.debts = make([]uint64, len(q.states))
	for l := range q.states {
		q.debts[l] = mostDebt(p, p.Limits[l])
	}
	q.held = q.holds(set, before, now, cut)
	return q
}

// holds returns the holds of the quota from now on, when its debts were as deep as
// before says; nil: it is new.
func (q *quota) holds(set *policy.Compiled, before []uint64, now, cut int64) []hold {
	held, any := make([]hold, len(q.states)), false
	for l := range held {
		if q.held != nil && q.held[l].active(now) {
			held[l] = q.held[l]
		}
		if before != nil && cut != neverCut && q.debts[l] > before[l] {
			held[l] = held[l].extended(before[l], q.refilledAt(set, l, cut), now)
		}
		any = any || held[l].active(now)
	}
	if !any {
		return nil
	}
	return held
}

// extended is h and a bound of most units until some time, as one.
func (h hold) extended(most uint64, until, now int64) hold {
	if !h.active(now) {
		return hold{most, until}
	}
	return hold{min(h.most, most), max(h.until, until)}
}

// refilledAt is when a bucket that was empty at a time is full at its largest
// capacity, whatever override its key has.
func (q *quota) refilledAt(set *policy.Compiled, l int, empty int64) (full int64) {
	for override := range len(set.Policy(q.policy).Overrides) + 1 {
		spec := set.Spec(q.policy, l, -1, int32(override)-1)
		full = max(full, spec.IdleAt(limit.State{Used: q.debts[l], At: empty}))
	}
	return full
}

// restrain is what limit l, which decided d by the size that the set says, decides by the
// size that it is held to.
func (q *quota) restrain(d limit.Decision, spec limit.Spec, l int, u limit.Usage, now int64, cost uint64) limit.Decision {
	h := q.held[l]
	if spec.Amount == limit.Unlimited || !h.active(now) || spec.Amount <= h.most {
		return d
	}
	spec.Amount = h.most
	less := spec.Peek(u, now, cost)
	if !less.Allowed {
		less.At = min(less.At, max(h.until, d.At))
	}
	return less
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
