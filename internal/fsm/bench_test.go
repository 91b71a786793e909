package fsm_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// million is how many keys the figures are taken at; -short takes a tenth.
func million() int {
	if testing.Short() {
		return 100_000
	}
	return 1_000_000
}

// BenchmarkState measures what the state costs, and says beside each figure what it
// should be. The machine is shared with whatever else runs, so times are the best of
// several.
func BenchmarkState(b *testing.B) {
	b.Run("bytes per key, 3 events", func(b *testing.B) { benchBytes(b, million(), 3, 20*second, 80) })
	b.Run("bytes per key, 500 events over 24 h", func(b *testing.B) { benchBytes(b, million()/50, 500, 24*hour/500, 4096) })
	b.Run("bytes per decision record", benchRecords)
	b.Run("build", benchBuild)
	for _, keys := range []int{1000, 100_000, million()} {
		b.Run(fmt.Sprintf("decide, %d keys", keys), func(b *testing.B) { benchDecide(b, keys) })
	}
	b.Run("snapshot", benchSnapshot)
}

// load drives a partition with full batches from keys of a realistic size.
type load struct {
	*replica
	rng    *rand.Rand
	keys   [][]byte
	slots  []uint16
	checks [fsm.MaxChecks]fsm.Check
	charge [fsm.MaxChecks][1]fsm.Charge
	list   []*fsm.Check
}

func newLoad(tb testing.TB, keys int, horizon int64, l policy.Limit) *load {
	p := policy.Policy{Name: "conversions", Key: []string{"api_class", "principal"}, Limits: []policy.Limit{l}}
	s := settings()
	s.Horizon = horizon
	d := &load{replica: start(tb, s, p), rng: rand.New(rand.NewPCG(1, 1))}
	for i := range keys {
		c := d.check(1, desc("api_class=convert", fmt.Sprintf("principal=user-%07d", i)))
		d.keys, d.slots = append(d.keys, c.Charges[0].Key), append(d.slots, c.Charges[0].Slot)
	}
	for i := range d.checks {
		d.checks[i].Charges = d.charge[i][:]
		d.list = append(d.list, &d.checks[i])
	}
	return d
}

// batch is an entry of a full batch, or less, for the keys that next names.
func (d *load) batch(n int, next func(i int) int) []byte {
	for i := range n {
		k := next(i)
		c := &d.checks[i]
		c.ID, c.Digest, c.Fence = d.id(), uint64(k), d.now
		c.Charges[0] = fsm.Charge{Tier: -1, Override: -1, Cost: 1, Key: d.keys[k], Slot: d.slots[k]}
	}
	return fsm.BatchEntry(d.header(), version, d.list[:n])
}

// commit applies an entry whose checks must all be allowed.
func (d *load) commit(e []byte) {
	d.index++
	a, err := d.m.Apply(d.index, d.term, e)
	if err != nil {
		d.tb.Fatal(err)
	}
	for i := range a.Answers {
		if a.Answers[i].Verdict != fsm.VerdictAllow {
			d.tb.Fatalf("check %d: %s", i, words[a.Answers[i].Verdict])
		}
	}
}

// round asks once for every key, the time of it spread over the length.
func (d *load) round(length int64) {
	n := len(d.keys)
	from := d.now
	for at := 0; at < n; at += fsm.MaxChecks {
		d.now = from + length/int64(n)*int64(at) + d.rng.Int64N(length/int64(n)*fsm.MaxChecks+1)
		d.commit(d.batch(min(fsm.MaxChecks, n-at), func(i int) int { return at + i }))
	}
	d.now = max(d.now, from+length)
}

func report(b *testing.B, value float64, unit string, target float64) {
	b.ReportMetric(value, unit)
	word := "met"
	if value > target {
		word = "MISSED"
	}
	b.Logf("%.1f %s, target %.0f: %s", value, unit, target, word)
}

func benchBytes(b *testing.B, keys, events int, gap int64, target float64) {
	for b.Loop() {
		window := gap*int64(events) + hour
		d := newLoad(b, keys, 2, policy.Limit{Name: "l", Algorithm: limit.RollingWindow, Amount: 1000, Window: window})
		base := heap()
		for range events {
			d.round(gap)
		}
		d.now += second
		d.settle()
		report(b, float64(heap()-base)/float64(keys), "bytes/key", target)
		mem := d.m.Memory()
		b.ReportMetric(float64(mem.Bytes)/float64(keys), "counted-bytes/key")
		if mem.Keys != keys || mem.Records != 0 {
			b.Fatalf("%+v", mem)
		}
		runtime.KeepAlive(d)
	}
	b.ReportMetric(0, "ns/op")
}

// benchBuild times the decisions that build a million keys of three events each, in
// random order, with a second's decisions remembered behind them. The median batch
// stands for a decision; the mean has besides the batches in which the index grew, and
// whatever else ran on the machine meanwhile.
func benchBuild(b *testing.B) {
	n := million()
	for b.Loop() {
		d := newLoad(b, n, second, policy.Limit{Name: "l", Algorithm: limit.RollingWindow, Amount: 1000, Window: hour})
		var took []time.Duration
		for range 3 {
			order := d.rng.Perm(n)
			for len(order) >= fsm.MaxChecks {
				d.now += second / 100
				e := d.batch(fsm.MaxChecks, func(i int) int { return order[i] })
				order = order[fsm.MaxChecks:]
				from := time.Now()
				d.commit(e)
				took = append(took, time.Since(from))
			}
		}
		slices.Sort(took)
		var total time.Duration
		for _, t := range took {
			total += t
		}
		per := func(t time.Duration) float64 { return float64(t) / fsm.MaxChecks }
		b.ReportMetric(per(took[0]), "best-ns/check")
		b.ReportMetric(per(took[len(took)*99/100]), "p99-ns/check")
		report(b, per(took[len(took)/2]), "median-ns/check", 600)
		report(b, per(total)/float64(len(took)), "mean-ns/check", 600)
	}
	b.ReportMetric(0, "ns/op")
}

func benchRecords(b *testing.B) {
	for b.Loop() {
		d := newLoad(b, 1, hour, policy.Limit{Name: "l", Algorithm: limit.TokenBucket, Amount: limit.MaxAmount / 1e6, Refill: limit.MaxAmount / 1e6, Window: second})
		base := heap()
		for range million() / fsm.MaxChecks {
			d.now += second / 100
			d.commit(d.batch(fsm.MaxChecks, func(int) int { return 0 }))
		}
		report(b, float64(heap()-base)/float64(d.m.Memory().Records), "bytes/record", 48)
		runtime.KeepAlive(d)
	}
	b.ReportMetric(0, "ns/op")
}

// steady is a load under which every key has about three events in its window of a
// minute, keys come and go, and a second's decisions are remembered.
func steady(tb testing.TB, keys int) (d *load, batch func() []byte) {
	d = newLoad(tb, keys, 20*second, policy.Limit{Name: "l", Algorithm: limit.RollingWindow, Amount: 1000, Window: minute})
	step := max(1, minute*fsm.MaxChecks/int64(3*keys))
	batch = func() []byte {
		d.now += step
		return d.batch(fsm.MaxChecks, func(int) int { return d.rng.IntN(keys) })
	}
	for d.now < minute*5/4 {
		d.commit(batch())
	}
	return d, batch
}

func benchDecide(b *testing.B, keys int) {
	d, batch := steady(b, keys)
	best := time.Hour
	var allocs uint64
	b.ResetTimer()
	for n := 0; n < b.N; n++ {
		b.StopTimer()
		e := batch()
		var before, after runtime.MemStats
		if n%64 == 0 {
			runtime.ReadMemStats(&before)
		}
		b.StartTimer()
		from := time.Now()
		d.commit(e)
		best = min(best, time.Since(from))
		if n%64 == 0 {
			b.StopTimer()
			runtime.ReadMemStats(&after)
			allocs += after.Mallocs - before.Mallocs
			b.StartTimer()
		}
	}
	checks := float64(fsm.MaxChecks)
	b.ReportMetric(float64(allocs)/float64((b.N+63)/64)/checks, "allocs/check")
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/checks, "mean-ns/check")
	if b.N > 100 { // not while the number of batches is being found
		report(b, float64(best)/checks, "best-ns/check", 600)
	}
}

// benchSnapshot measures how long applies are held up by a snapshot: each batch after
// it is taken against each batch of quiet times. Of several runs the quickest time of
// a batch counts, as anything else may have had the processor; of the batches the worst.
func benchSnapshot(b *testing.B) {
	const runs, batches = 5, 100
	d, batch := steady(b, million())
	for b.Loop() {
		freeze := time.Hour
		var quiet, held [batches]time.Duration
		for run := range runs {
			d.timed(batch, run, quiet[:])
			from := time.Now()
			s := d.m.Snapshot()
			freeze = min(freeze, time.Since(from))
			done := make(chan error)
			go func() {
				_, err := s.WriteTo(io.Discard)
				done <- err
			}()
			d.timed(batch, run, held[:])
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		b.ReportMetric(ms(freeze), "freeze-ms")
		b.ReportMetric(ms(slices.Max(quiet[:])), "quiet-ms")
		b.ReportMetric(ms(slices.Max(held[:])), "held-ms")
		report(b, ms(max(0, slices.Max(held[:])-slices.Max(quiet[:]))), "held-up-ms", 10)
		benchRestore(b, d.m)
	}
	b.ReportMetric(0, "ns/op")
}

// timed applies batches and notes of each the quickest time of all runs.
func (d *load) timed(batch func() []byte, run int, took []time.Duration) {
	for i := range took {
		e := batch()
		from := time.Now()
		d.commit(e)
		if t := time.Since(from); run == 0 || t < took[i] {
			took[i] = t
		}
	}
}

func benchRestore(b *testing.B, m *fsm.Machine) {
	var image bytes.Buffer
	from := time.Now()
	if _, err := m.Snapshot().WriteTo(&image); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(time.Since(from).Seconds(), "write-s")
	b.ReportMetric(float64(image.Len())/1e6, "MB")
	from = time.Now()
	if _, err := fsm.Restore(&image); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(time.Since(from).Seconds(), "restore-s")
}

// BenchmarkSwitch is what a change of policies holds up applies for: it goes by the policies, not by the keys.
func BenchmarkSwitch(b *testing.B) {
	for _, policies := range []int{10, 1000, 10_000} {
		for _, keys := range []int{0, 100_000} {
			b.Run(fmt.Sprintf("%d policies, %d keys", policies, keys), func(b *testing.B) { benchSwitch(b, policies, keys) })
		}
	}
}

func benchSwitch(b *testing.B, policies, keys int) {
	list := others(policies)
	p := perUser(rolling(9, hour))
	r := start(b, settings(), append(list, p)...)
	r.fill(keys, 1e6)
	var sets [2][]byte
	for i := range sets {
		list[0].Limits = []policy.Limit{rolling(uint64(5+i), hour)}
		sets[i] = policy.Set{Policies: append(list, p)}.Canonical()
	}
	for i := 0; b.Loop(); i++ {
		next := fsm.Version{Epoch: 1, Number: r.v.Number + 1}
		if a := r.apply(fsm.ChangeEntry(r.header(), r.v, next, sets[i%2])); a.Refusal != fsm.Accepted {
			b.Fatal(a.Refusal)
		}
		r.v, r.log = next, nil
	}
}
