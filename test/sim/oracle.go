package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/test/checker"
)

// form waits until the partition has a leader and a policy set.
func (w *world) form() bool {
	for range 200 {
		if m := w.leader(); m != nil {
			if g := m.group(); g != nil && g.Standing().Formed {
				w.orderSet(m, g, policies(4))
				if g.Standing().HasSet {
					return true
				}
			}
		}
		sleep(100*time.Millisecond, nil)
	}
	w.problem("no leader, or no policy set, after 20 s")
	return false
}

// failed hears why the product gave up. Troubles of the disk are reasons; others are not.
func (w *world) failed(m *machine, err error) {
	for _, reason := range []error{errDisk, errFull, errDead, partition.ErrStuckDisk} {
		if strings.Contains(err.Error(), reason.Error()) {
			w.count("ended by its disk")
			return
		}
	}
	if strings.Contains(err.Error(), "restart to discard") {
		w.count("logs discarded")
		return
	}
	w.mu.Lock()
	w.failures++
	many := w.failures > 5
	w.mu.Unlock()
	if !many {
		w.problem("%s gave up: %v", m.id, err)
	}
}

// watch looks at the replicas as they go, until the trouble is over.
func (w *world) watch() {
	var term uint64
	for sleep(40*time.Millisecond, w.ending) {
		for _, m := range w.machines {
			g := m.group()
			if g == nil {
				continue
			}
			s := g.Status()
			if s.Ready && s.Term > term {
				term = s.Term
				w.count("elections")
				w.mark("%s leads term %d", m.id, term)
			}
			w.saw(m, s)
		}
	}
}

// saw compares a replica's state with what others had at the same entry.
func (w *world) saw(m *machine, s partition.Status) {
	if s.Applied == 0 {
		return
	}
	hash := fmt.Sprintf("%016x", s.Hash)
	w.history.add(&checker.State{Node: m.id, Index: s.Applied, Hash: hash})
	w.mu.Lock()
	before, known := w.hashes[s.Applied]
	w.hashes[s.Applied] = hash
	w.mu.Unlock()
	if known {
		w.count("states compared")
	}
	if known && before != hash {
		w.problem("at entry %d %s has state %s, another had %s", s.Applied, m.id, hash, before)
	}
}

// calm waits until all is well again: within some elections all three run, one leads, and all have the same.
func (w *world) calm() {
	w.undoing.Wait()
	w.mark("calm")
	for range 600 {
		sleep(50*time.Millisecond, nil)
		if w.settled() {
			return
		}
	}
	for _, m := range w.machines {
		if g := m.group(); g != nil {
			w.problem("not settled: %+v", g.Status())
		} else {
			w.problem("not settled: %s does not run", m.id)
		}
	}
}

func (w *world) settled() bool {
	lead := w.leader()
	if lead == nil {
		return false
	}
	if g := lead.group(); g == nil || g.Inspect("hot", descriptor("k0")).Result != partition.Allowed {
		return false // without a lease, for instance for a while after a handover that failed
	}
	var applied uint64
	for i, m := range w.machines {
		p := m.process()
		if p == nil || p.died() || p.group.Load() == nil || p.awaited.Load() > 0 {
			return false
		}
		s := p.group.Load().Status()
		w.saw(m, s)
		if i > 0 && s.Applied != applied {
			return false
		}
		applied = s.Applied
	}
	return true
}

// judge looks whether all promises were kept.
func (w *world) judge() {
	m := w.leader()
	if m == nil {
		w.problem("nobody leads in the end")
		return
	}
	w.repeat(m)
	w.countUses(m)
	w.countWindows()
	w.compareTimes()
}

// repeat asks for every allow again: it is given again as long as its record lives, and never made anew.
func (w *world) repeat(m *machine) {
	for _, q := range w.clients.all {
		if !q.allowed && !q.unknown {
			continue
		}
		knew, at := q.allowed, q.at
		sent := w.now()
		o, ok := w.direct(m, q.request)
		if !ok {
			return
		}
		w.hear("auditor", q, m.id, sent, &o)
		lives := o.Time-at < int64(w.manners.horizon)
		if knew && lives && (o.Result != partition.Allowed || !o.Answer.Replayed) {
			w.problem("the allow of id %x at %d is gone at %d: result %d", q.request.ID, at, o.Time, o.Result)
		}
	}
}

// direct asks without a network.
func (w *world) direct(m *machine, r partition.Request) (partition.Outcome, bool) {
	done := make(chan partition.Outcome, 1)
	m.take(r, 0, func(o partition.Outcome) { done <- o })
	wait := time.NewTimer(10 * time.Second)
	defer wait.Stop()
	select {
	case o := <-done:
		return o, true
	case <-wait.C:
		w.problem("no answer within 10 s of calm")
		return partition.Outcome{}, false
	}
}

// subject is a key of a quota.
type subject struct{ domain, key string }

func (w *world) subjects() map[subject][]*question {
	all := map[subject][]*question{}
	for _, q := range w.clients.all {
		k := subject{q.domain, q.key}
		all[k] = append(all[k], q)
	}
	return all
}

// countUses compares what is recorded of each key with what clients were told.
func (w *world) countUses(m *machine) {
	all := w.subjects()
	keys := make([]subject, 0, len(all))
	for k := range all {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b subject) int { return cmp.Or(cmp.Compare(a.domain, b.domain), cmp.Compare(a.key, b.key)) })
	for _, k := range keys {
		w.countUse(m, k, all[k])
	}
}

func (w *world) countUse(m *machine, k subject, questions []*question) {
	sent := w.now()
	in, ok := w.inspect(m, k)
	if !ok {
		w.problem("inspect %s %s: result %d", k.domain, k.key, in.Result)
		return
	}
	least, most := uint64(0), uint64(0)
	for _, q := range questions {
		if q.allowed {
			least += q.request.Cost
		}
		if q.allowed || q.unknown {
			most += q.request.Cost
		}
	}
	line := &checker.Usage{
		Quota: quotaOf(k.domain), Key: "principal=" + k.key, Sent: sent, Answered: w.now(), Epoch: in.Epoch, Time: in.Time,
	}
	for _, u := range in.Uses {
		name := in.Policy.Limits[u.Limit].Name
		line.Limits = append(line.Limits, checker.Used{Name: name, Used: u.Used})
		if name == "all" && (u.Used < least || u.Used > most) {
			w.problem("%s %s: %d used, allowed %d, with those of unknown outcome %d", k.domain, k.key, u.Used, least, most)
		}
	}
	w.history.add(line)
}

// inspect asks what a key has used, again while the leader has no lease.
func (w *world) inspect(m *machine, k subject) (in partition.Inspection, ok bool) {
	for range 100 {
		if g := m.group(); g != nil {
			if in = g.Inspect(k.domain, descriptor(k.key)); in.Result != partition.NoQuorum {
				break
			}
		}
		sleep(50*time.Millisecond, nil)
	}
	return in, in.Result == partition.Allowed
}

// countWindows counts each window of the limits that are never edited.
func (w *world) countWindows() {
	limits := map[string][]checker.Limit{}
	for _, l := range policies(0).limits {
		limits[l.Quota] = append(limits[l.Quota], l)
	}
	for k, questions := range w.subjects() {
		if k.domain == "edited" {
			continue
		}
		questions = slices.DeleteFunc(slices.Clone(questions), func(q *question) bool { return !q.allowed })
		slices.SortFunc(questions, func(a, b *question) int { return cmp.Compare(a.at, b.at) })
		for _, l := range limits[quotaOf(k.domain)] {
			if at, sum := fullest(questions, l.Window); sum > l.Max {
				w.problem("%s %s: %d within %v from %d, limit %d", k.domain, k.key, sum, time.Duration(l.Window), at, l.Max)
			}
		}
	}
}

// fullest is the window with most in it.
func fullest(sorted []*question, window int64) (at int64, most uint64) {
	sum, first := uint64(0), 0
	for _, q := range sorted {
		sum += q.request.Cost
		for sorted[first].at <= q.at-window {
			sum -= sorted[first].request.Cost
			first++
		}
		if sum > most {
			at, most = sorted[first].at, sum
		}
	}
	return at, most
}

// told is an event: when it was decided at the earliest and at the latest, in the world's time, and its decision time.
type told struct{ sent, answered, time int64 }

// events are the allows. One whose id was sent several times was decided after the first of these, also where a later
// one had the first answer: it joined the first, or was given its record.
func (w *world) events() []told {
	byID := map[string]*told{}
	sent := map[string]int64{}
	for _, l := range w.history.lines {
		c, ok := l.(*checker.Call)
		if !ok {
			continue
		}
		if at, known := sent[c.ID]; !known || c.Sent < at {
			sent[c.ID] = c.Sent
		}
		// A denial may be of a time that was never logged: a leader whose clock stands still says what it has.
		if c.Answer != checker.Allow {
			continue
		}
		if e := byID[c.ID]; e == nil {
			byID[c.ID] = &told{answered: c.Answered, time: c.Time}
		} else {
			e.answered = min(e.answered, c.Answered)
		}
	}
	var all []told
	for id, e := range byID {
		all = append(all, told{sent[id], e.answered, e.time})
	}
	slices.SortFunc(all, func(a, b told) int {
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.sent, b.sent), cmp.Compare(a.answered, b.answered))
	})
	return all
}

// compareTimes looks whether decision time ever ran faster than the world's between two events: the later one was
// decided before it was answered, the earlier one after it was sent.
func (w *world) compareTimes() {
	all := w.events()
	before := told{sent: -1 << 62} // of those of earlier times, that with most of sent - time
	for i := 0; i < len(all); {
		same := i
		for ; i < len(all) && all[i].time == all[same].time; i++ {
			if e := all[i]; before.sent-before.time > e.answered-e.time {
				w.problem("decision time ran ahead of the world's by %v: %+v after %+v", time.Duration(before.sent-before.time-e.answered+e.time), e, before)
				return
			}
		}
		for _, e := range all[same:i] {
			if e.sent-e.time > before.sent-before.time {
				before = e
			}
		}
	}
}

// check has the history judged by those who know nothing of replicas.
func (w *world) check() {
	report, err := checker.Check(w.history.lines, checker.Options{RetryHorizon: w.manners.horizon, Live: true, Fenced: true})
	if err != nil {
		w.problem("the history makes no sense: %v", err)
		return
	}
	for _, v := range report.Violations {
		w.problem("the history breaks rule %s: %s %v", v.Rule, v.What, v.Lines)
	}
	if !report.OK() && len(report.Violations) == 0 {
		w.problem("the history can't be judged:\n%v", report)
	}
	for _, what := range []string{"windows in real time", "calls in order", "pairs of times"} {
		w.countMany("checked: "+what, report.Counts[what])
	}
}
