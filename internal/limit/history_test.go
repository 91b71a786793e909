package limit_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/quorate/quorate/internal/limit"
)

// A run is one random history of one key, decided by the package and by the oracle
// at every step.
type run struct {
	*choices
	key     *key
	oracle  *oracle
	amounts []uint64 // what tiers give to different checks of the key
	now     int64
	floor   int64 // when something was last reclaimed: time can't step back behind that
	hint    int64 // the instant that the last denial named
}

func newRun(c *choices, algorithm limit.Algorithm) *run {
	names := map[limit.Algorithm]string{
		limit.RollingWindow: "rolling", limit.TokenBucket: "bucket",
		limit.SlidingWindowCounter: "counter", limit.FixedWindow: "fixed",
	}
	r := &run{choices: c}
	s := limit.Spec{Algorithm: algorithm, Window: r.window(), Refill: r.quantity()}
	r.amounts = []uint64{r.quantity()}
	if r.below(3) == 0 {
		r.amounts = append(r.amounts, r.quantity(), limit.Unlimited)
	}
	r.key = newKey(s)
	for _, a := range r.amounts {
		r.key.most = max(r.key.most, min(a, limit.MaxAmount), 1)
	}
	r.oracle = &oracle{algorithm: names[algorithm], window: s.Window, refill: s.Refill}
	if r.below(8) == 0 { // late in the life of a partition, or at its very end
		r.now = pick(r.choices, limit.Never-2, limit.Never-2*min(s.Window, limit.Never/2), limit.Never/2)
	}
	if algorithm == limit.RollingWindow {
		r.forget()
	}
	return r
}

// forget gives some keys a past that isn't known.
func (r *run) forget() {
	w := r.key.spec.Window
	if r.below(4) == 0 {
		since := r.now + pick(r.choices, -w, 1-w, 0, 1, int64(r.below(uint64(w))))
		r.key.usage.KnownSince, r.oracle.knownSince = since, &since
	}
	if r.below(4) == 0 {
		mark := r.now
		l := limit.InitLog(make([]byte, limit.LogHeader+limit.MarkSize))
		l.Mark(mark)
		r.key.usage.Log, r.oracle.marker = l, &mark
	}
}

func (r *run) window() int64 {
	switch r.below(4) {
	case 0:
		return 1 + int64(r.below(12))
	case 1:
		return pick(r.choices, second, 60*second, 86_400*second, second/4)
	case 2:
		return 1 + int64(r.below(1<<40))
	}
	return pick(r.choices, limit.Never, limit.Never-1, 1<<62, 1<<62+1, 1<<53+1)
}

func (r *run) quantity() uint64 {
	switch r.below(4) {
	case 0, 1:
		return r.below(12)
	case 2:
		return r.below(1 << 32)
	}
	return pick(r.choices, limit.MaxAmount, limit.MaxAmount-1, 1<<62, 1<<53+1)
}

func (r *run) cost() uint64 {
	amount := r.key.spec.Amount
	if amount == limit.Unlimited {
		return 1 + min(r.quantity(), limit.MaxAmount-1)
	}
	switch r.below(4) {
	case 0:
		return pick(r.choices, max(amount, 1), amount+1, amount/2+1, amount/3+1)
	case 1:
		return max(1, r.key.peek(r.now, 1).Remaining)
	}
	return 1 + r.below(3)
}

// step moves time: not at all, to an edge of a window, to where a denial pointed,
// a nanosecond before that, or back.
func (r *run) step() {
	w := r.key.spec.Window
	next := r.now
	switch r.below(10) {
	case 0, 1:
	case 2:
		next += pick(r.choices, 1, w-1, w)
	case 3:
		next = max(next, r.hint)
	case 4:
		next = max(next, r.hint-1)
	case 5: // the edge of an aligned window, more or less
		next = r.now - r.now%w + w + pick(r.choices, int64(-1), 0, 1)
	case 6:
		next -= min(next, pick(r.choices, 1, w))
	default:
		next += int64(r.below(uint64(w)/4 + 2))
	}
	if next >= r.floor && next < limit.Never { // else it overflowed, or is no time
		r.now = next
	}
}

func (r *run) check(t *testing.T) {
	k := r.key
	k.spec.Amount = pick(r.choices, r.amounts...)
	cost := r.cost()
	before := contents(k.usage)
	got := k.peek(r.now, cost)
	want := r.oracle.decide(k.spec.Amount, r.now, cost)
	if (verdict{got.Allowed, got.Remaining, got.At}) != want {
		t.Fatalf("%+v cost %d at %d: %+v, the oracle says %+v of %+v", k.spec, cost, r.now, got, want, r.oracle)
	}
	if got.Allowed {
		at := max(r.now, r.oracle.newest())
		k.charge(at, cost)
		r.oracle.history = append(r.oracle.history, admission{at, cost})
		return
	}
	r.hint = got.At
	if after := contents(k.usage); after != before {
		t.Fatalf("a denial changed the usage from %s to %s", before, after)
	}
	r.checkHint(t, cost, got.At)
}

// contents is all that usage says.
func contents(u limit.Usage) string {
	mark, marked := u.Log.Marker()
	return fmt.Sprint(u.State, u.KnownSince, mark, marked, slices.Collect(u.Log.Events()))
}

// checkHint holds a denial's At against its definition.
func (r *run) checkHint(t *testing.T, cost uint64, at int64) {
	if at == limit.Never {
		return
	}
	if !r.key.peek(at, cost).Allowed {
		t.Fatalf("cost %d denied at %d, which was said to be the time", cost, at)
	}
	if r.key.peek(at-1, cost).Allowed {
		t.Fatalf("cost %d allowed at %d, before the time that was said", cost, at-1)
	}
}

func (r *run) checkFullAt(t *testing.T) {
	k := r.key
	got := k.spec.FullAt(k.usage, r.now)
	if k.spec.Amount == limit.Unlimited {
		if got != r.now {
			t.Fatalf("an unlimited amount is full at %d, not at %d", got, r.now)
		}
		return
	}
	if want := r.oracle.clearAt(r.now); got != want && max(got, r.oracle.newest()) != want {
		t.Fatalf("%+v full again at %d, the oracle says %d", k.spec, got, want)
	}
}

// reclaim drops what no longer counts, which must not show.
func (r *run) reclaim() {
	k := r.key
	r.floor = r.now
	if k.spec.Algorithm != limit.RollingWindow {
		if k.spec.IdleAt(k.usage.State) <= r.now {
			k.usage.State = limit.State{At: k.usage.State.At}
		}
		return
	}
	l := k.usage.Log
	gone := max(r.now, r.oracle.newest()) - k.spec.Window
	if m, ok := l.Marker(); ok && m <= gone {
		l.ClearMarker()
	}
	for e, ok := l.First(); ok && e.Time <= gone; e, ok = l.First() {
		l.DropFirst()
	}
	if r.below(4) == 0 {
		k.usage.Log = l.CopyTo(make([]byte, l.CompactSize()))
	}
}

func (r *run) play(t *testing.T, steps int) {
	for i := 0; i < steps && !r.over() && !t.Failed(); i++ {
		r.step()
		r.check(t)
		switch r.below(6) {
		case 0:
			r.checkFullAt(t)
		case 1:
			r.reclaim()
		}
	}
}

// TestRollingWindowAgainstOracle and its three siblings: each decision on thousands
// of random histories is the one that the whole history gives.
func TestRollingWindowAgainstOracle(t *testing.T) { againstOracle(t, limit.RollingWindow, 2000) }
func TestTokenBucketAgainstOracle(t *testing.T)   { againstOracle(t, limit.TokenBucket, 800) }
func TestSlidingWindowCounterAgainstOracle(t *testing.T) {
	againstOracle(t, limit.SlidingWindowCounter, 2000)
}
func TestFixedWindowAgainstOracle(t *testing.T) { againstOracle(t, limit.FixedWindow, 2000) }

func againstOracle(t *testing.T, a limit.Algorithm, histories int) {
	if testing.Short() {
		histories /= 10
	}
	eachSeed(t, histories, func(t *testing.T, seed uint64) {
		newRun(seeded(seed), a).play(t, 24)
	})
}

func FuzzAlgorithms(f *testing.F) {
	for a := range byte(4) {
		f.Add(a, []byte("\x00\x03\x01\x02\x00\x00\x00\x00\x07\x01\x02\x00\x05\x00\x01"))
		f.Add(a, []byte("\x03\x00\x03\x00\x01\x00\x00\x02\x03\x00\x01\x01\x04\x00\x00\x03"))
	}
	f.Fuzz(func(t *testing.T, a byte, data []byte) {
		newRun(&choices{data: data}, limit.Algorithm(1+a%4)).play(t, 24)
	})
}
