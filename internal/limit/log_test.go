package limit_test

import (
	"slices"
	"testing"

	"github.com/quorate/quorate/internal/limit"
)

// slow is a log as anybody would write it: a slice of events.
type slow struct {
	events []limit.Event
	marker *int64
}

func (s *slow) used(after int64) (units uint64) {
	for _, e := range s.events {
		if e.Time > after {
			units += e.Cost
		}
	}
	return units
}

func (s *slow) freedAt(after int64, need uint64) int64 {
	sum := uint64(0)
	for _, e := range s.events {
		if e.Time > after {
			if sum += e.Cost; sum >= need {
				return e.Time
			}
		}
	}
	return limit.Never
}

// logRun does random things to a log and to a slice, and asks both the same.
type logRun struct {
	*choices
	log  limit.Log
	slow slow
	now  int64
}

func (r *logRun) append() {
	// Gaps of a day, as between the events of a quiet key, and none at all.
	r.now += int64(r.below(pick(r.choices, uint64(1), 1, 2, 100, 1<<20, 1<<37, 1<<50)))
	cost := uint64(1)
	if r.below(3) == 0 {
		cost = 1 + r.below(pick(r.choices, uint64(3), 200, 1<<20, 1<<60))
	}
	e := limit.Event{Time: r.now, Cost: cost}
	precision := pick(r.choices, 0, 0, 0, 1+int64(r.below(1000)))
	if last, ok := r.log.Last(); ok && limit.Merges(last.Time, r.now, precision) {
		r.dropLast()
		e = last.Merged(r.now, cost)
	}
	for _, ok := r.log.Excess(limit.MaxAmount, e.Cost); ok; _, ok = r.log.Excess(limit.MaxAmount, e.Cost) {
		r.forget()
	}
	r.log = appended(r.log, e.Time, e.Cost)
	r.slow.events = append(r.slow.events, e)
}

func (r *logRun) dropFirst() {
	r.log.DropFirst()
	r.slow.events, r.slow.marker = r.slow.events[1:], nil
}

func (r *logRun) dropLast() {
	r.log.DropLast()
	r.slow.events = r.slow.events[:len(r.slow.events)-1]
}

func (r *logRun) forget() {
	r.log.Forget()
	t := r.slow.events[0].Time
	r.slow.events, r.slow.marker = r.slow.events[1:], &t
}

func (r *logRun) clearMarker() {
	r.log.ClearMarker()
	r.slow.marker = nil
}

func (r *logRun) copy(t *testing.T) {
	size := r.log.CompactSize()
	if r.log = r.log.CopyTo(make([]byte, size+int(r.below(40)))); r.log.Size() != size {
		t.Fatalf("a compact copy of %d bytes, %d were announced", r.log.Size(), size)
	}
}

// step mostly appends while growing, and mostly drops while not.
func (r *logRun) step(t *testing.T, growing bool) {
	if appends := map[bool]uint64{true: 8, false: 3}[growing]; r.below(10) < appends || len(r.slow.events) == 0 {
		r.append()
		return
	}
	switch c := r.below(10); {
	case c < 5:
		r.dropFirst()
	case c < 6:
		r.dropLast()
	case c < 8:
		r.forget()
	case c < 9:
		r.clearMarker()
	default:
		r.copy(t)
	}
}

func (r *logRun) compare(t *testing.T) {
	t.Helper()
	if got := slices.Collect(r.log.Events()); !slices.Equal(got, r.slow.events) {
		t.Fatalf("events %v, want %v", got, r.slow.events)
	}
	mark, marked := r.log.Marker()
	if marked != (r.slow.marker != nil) || marked && mark != *r.slow.marker {
		t.Fatalf("marker %d, %v", mark, marked)
	}
	n := len(r.slow.events)
	first, some := r.log.First()
	last, also := r.log.Last()
	if some != (n > 0) || also != some || r.log.Empty() == some {
		t.Fatalf("%d events; first %v, last %v, empty %v", n, some, also, r.log.Empty())
	}
	if n > 0 && (first != r.slow.events[0] || last != r.slow.events[n-1]) {
		t.Fatalf("first %v and last %v of %v", first, last, r.slow.events)
	}
	if got, want := r.log.Units(), r.slow.used(limit.Forever); got != want {
		t.Fatalf("%d units, want %d", got, want)
	}
	if r.log.Size() > max(r.log.Capacity(), limit.LogHeader) {
		t.Fatalf("%d bytes in a region of %d", r.log.Size(), r.log.Capacity())
	}
	r.ask(t)
}

// ask puts the same look-ups to both, near an event and elsewhere.
func (r *logRun) ask(t *testing.T) {
	t.Helper()
	after := int64(r.below(uint64(r.now) + 2))
	if n := uint64(len(r.slow.events)); n > 0 {
		after = pick(r.choices, after, r.slow.events[r.below(n)].Time, r.slow.events[r.below(n)].Time-1)
	}
	used := r.slow.used(after)
	if got := r.log.Used(after); got != used {
		t.Fatalf("%d used after %d, want %d of %v", got, after, used, r.slow.events)
	}
	need := 1 + pick(r.choices, r.below(used+1), used, r.below(3))
	if got, want := r.log.FreedAt(after, need), r.slow.freedAt(after, need); got != want {
		t.Fatalf("%d units after %d reached at %d, want %d of %v", need, after, got, want, r.slow.events)
	}
}

func playLog(t *testing.T, c *choices, steps int) {
	r := &logRun{choices: c}
	growing := true
	for i := 0; i < steps && !c.over(); i++ {
		if r.below(150) == 0 {
			growing = !growing
		}
		r.step(t, growing)
		if i%4 == 0 || i > steps-20 {
			r.compare(t)
		}
	}
	r.compare(t)
}

// TestLogAgainstSlice: whatever is done to a log, it says what a slice says.
func TestLogAgainstSlice(t *testing.T) {
	histories := 200
	if testing.Short() {
		histories = 20
	}
	eachSeed(t, histories, func(t *testing.T, seed uint64) { playLog(t, seeded(seed), 500) })
}

func FuzzLog(f *testing.F) {
	f.Add([]byte("\x01\x00\x02\x00\x00\x01\x10\x00\x11\x12\x01\x02\x03"))
	f.Add(slices.Repeat([]byte{0, 5, 200, 1, 2}, 90))
	f.Fuzz(func(t *testing.T, data []byte) { playLog(t, &choices{data: data}, 2000) })
}

// pagesFull is a log of n events over several pages: the i-th at 10·i, at cost i%3+1.
func pagesFull(n int) (limit.Log, *slow) {
	var l limit.Log
	s := &slow{}
	for i := range n {
		e := limit.Event{Time: int64(i) * 10 * second, Cost: uint64(i%3) + 1}
		l = appended(l, e.Time, e.Cost)
		s.events = append(s.events, e)
	}
	return l, s
}

// TestLogSumsAcrossPages asks about every event of a log of many pages, while it
// loses its first ones one by one.
func TestLogSumsAcrossPages(t *testing.T) {
	l, s := pagesFull(150)
	for len(s.events) > 0 {
		for i := 0; i < len(s.events); i += 1 + len(s.events)/30 {
			at := s.events[i].Time
			if got, want := l.Used(at), s.used(at); got != want {
				t.Fatalf("%d used after event %d of %d, want %d", got, i, len(s.events), want)
			}
			need := s.used(limit.Forever) - s.used(at)
			if got := l.FreedAt(limit.Forever, need); got != at {
				t.Fatalf("%d units are reached at %d, want %d", need, got, at)
			}
		}
		l.DropFirst()
		s.events = s.events[1:]
	}
	if !l.Empty() || l.Size() != limit.LogHeader {
		t.Fatalf("%d bytes left of an empty log", l.Size())
	}
}

// TestLogFirstAfterDrops: the head keeps its time while the events before it go,
// also from page to page.
func TestLogFirstAfterDrops(t *testing.T) {
	l, s := pagesFull(150)
	for _, want := range s.events {
		if got, _ := l.First(); got != want {
			t.Fatalf("first is %v, want %v", got, want)
		}
		l.DropFirst()
	}
}

// TestLogLayoutDoesNotShow: a log rebuilt from its events answers the same.
func TestLogLayoutDoesNotShow(t *testing.T) {
	l, _ := pagesFull(150)
	for range 60 {
		l.DropFirst()
	}
	var rebuilt limit.Log
	for e := range l.Events() {
		rebuilt = appended(rebuilt, e.Time, e.Cost)
	}
	bytes := make([]byte, l.CompactSize())
	l.CopyTo(bytes)
	copied := limit.OpenLog(bytes)
	for after := 595 * second; after < 1500*second; after += 5 * second {
		for _, other := range []limit.Log{rebuilt, copied} {
			if got, want := other.Used(after), l.Used(after); got != want {
				t.Fatalf("%d used after %d, the original says %d", got, after, want)
			}
			if got, want := other.FreedAt(after, 60), l.FreedAt(after, 60); got != want {
				t.Fatalf("60 units after %d reached at %d, the original says %d", after, got, want)
			}
		}
	}
}

// TestExcessIsWhatCannotMatter: of 10 units in a log, a policy whose largest amount is
// 3 needs the last 2, and the coming one.
func TestExcessIsWhatCannotMatter(t *testing.T) {
	var l limit.Log
	for i := range int64(10) {
		l = appended(l, i*second, 1)
	}
	for i := range int64(8) {
		if e, ok := l.Excess(3, 1); !ok || e.Time != i*second {
			t.Fatalf("%v, %v is in excess, want that of %d s", e, ok, i)
		}
		l.Forget()
	}
	if e, ok := l.Excess(3, 1); ok {
		t.Fatalf("%v is in excess too", e)
	}
	if mark, ok := l.Marker(); !ok || mark != 7*second {
		t.Fatalf("the marker stands at %d, %v", mark, ok)
	}
}

// TestUnlimitedUnitsNeverOverflow: charges of an unlimited amount, as large as they may be.
func TestUnlimitedUnitsNeverOverflow(t *testing.T) {
	k := newKey(rolling(limit.Unlimited, 60*second))
	k.most = limit.MaxAmount
	for i := range int64(5) {
		k.wants(t, 2*i, limit.MaxAmount, allow(2*i, limit.Unlimited))
		k.wants(t, 2*i+1, limit.MaxAmount/3, allow(2*i+1, limit.Unlimited))
	}
	k.spec.Amount = limit.MaxAmount
	k.wants(t, 10, 1, deny(60*second+8, 0))
}

// TestMergedEventsStandAtTheLaterTime: with a precision of 1 s, events at 1.2 s and 1.7 s
// are one at 1.7 s, and leave the window together, the first too late.
func TestMergedEventsStandAtTheLaterTime(t *testing.T) {
	var l limit.Log
	for _, at := range []int64{12 * second / 10, 17 * second / 10, 21 * second / 10} {
		e := limit.Event{Time: at, Cost: 1}
		if last, ok := l.Last(); ok && limit.Merges(last.Time, at, second) {
			l.DropLast()
			e = last.Merged(at, 1)
		}
		l = appended(l, e.Time, e.Cost)
	}
	want := []limit.Event{{Time: 17 * second / 10, Cost: 2}, {Time: 21 * second / 10, Cost: 1}}
	if got := slices.Collect(l.Events()); !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	if limit.Merges(second, second, 0) {
		t.Error("without a precision equal times merge")
	}
	if e := (limit.Event{Time: 1, Cost: limit.MaxAmount}).Merged(2, limit.MaxAmount); e.Cost != limit.MaxAmount {
		t.Errorf("%d units in an event", e.Cost)
	}
}

// TestMarkRebuildsAMarker: what a snapshot does, in the order that it does it.
func TestMarkRebuildsAMarker(t *testing.T) {
	l := limit.InitLog(make([]byte, limit.LogHeader+limit.MarkSize))
	l.Mark(5 * second)
	l.Mark(3 * second)
	if !l.Empty() {
		t.Error("a marker counts as an event")
	}
	l = appended(l, 6*second, 2)
	if mark, _ := l.Marker(); mark != 5*second {
		t.Errorf("the marker stands at %d", mark)
	}
	if l.ClearMarker(); l.Units() != 2 {
		t.Errorf("%d units without the marker", l.Units())
	}
}

// TestImpossibleStatesPanic: what only a broken caller can ask for.
func TestImpossibleStatesPanic(t *testing.T) {
	roomy := func() limit.Log {
		l := limit.InitLog(make([]byte, 200))
		l.Append(10, 5)
		return l
	}
	for name, f := range map[string]func(){
		"time runs back":     func() { roomy().Append(9, 1) },
		"time before zero":   func() { limit.InitLog(make([]byte, 200)).Append(-1, 1) },
		"time that never is": func() { roomy().Append(limit.Never, 1) },
		"no cost":            func() { roomy().Append(11, 0) },
		"too much cost":      func() { limit.InitLog(make([]byte, 200)).Append(11, limit.MaxAmount+1) },
		"units overflow": func() {
			l := roomy()
			l.Append(10, limit.MaxAmount)
			l.Append(10, limit.MaxAmount-5)
			l.Append(10, 2)
		},
		"no room": func() { limit.InitLog(make([]byte, limit.LogHeader)).Append(11, 1) },
		"copy without room": func() {
			l := roomy()
			l.Append(11, 1)
			l.CopyTo(make([]byte, l.CompactSize()-1))
		},
		"region too small":   func() { limit.InitLog(make([]byte, limit.LogHeader-1)) },
		"drop first of none": func() { limit.Log{}.DropFirst() },
		"drop last of none":  func() { limit.Log{}.DropLast() },
		"forget of none":     func() { limit.Log{}.Forget() },
		"mark behind events": func() { roomy().Mark(11) },
		"charge of a log":    func() { rolling(1, 1).Charge(limit.State{}, 0, 1) },
		"idle time of a log": func() { rolling(1, 1).IdleAt(limit.State{}) },
		"exhausted log":      func() { rolling(1, 1).Exhausted(0) },
		"unknown algorithm":  func() { limit.Spec{Window: 1}.Peek(limit.Usage{}, 0, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}
