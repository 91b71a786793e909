package partition_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/partition"
)

// history is what one asker knows of a partition in which things go wrong: every
// id that it ever sent, and what it heard.
type history struct {
	cl    *cluster
	rng   *rand.Rand
	ids   []*idHistory
	known int64 // the newest logged decision time heard of: the fence of new ids
	sent  []pendingSend
}

type idHistory struct {
	request partition.Request
	key     string
	unknown bool  // some send's outcome was never told
	allowed bool  // some send was answered with an allow
	at      int64 // decision time of the allow
}

type pendingSend struct {
	id *idHistory
	s  *sent
}

var hotKeys = []string{"k0", "k1", "k2"}

// TestRandomHistories: replicas are cut off, stopped and started, clocks jump, and
// askers repeat themselves. In the end every allow is remembered, none was charged
// twice, nothing that was refused was charged, no window holds more than its
// limit, and all replicas agree.
func TestRandomHistories(t *testing.T) {
	seeds(t, 60, func(t *testing.T, rng *rand.Rand) {
		inBubble(t, func(cl *cluster) {
			h := &history{cl: cl, rng: rng}
			for _, r := range cl.replicas {
				r.disk.slow(time.Duration(rng.IntN(3)) * time.Millisecond)
			}
			for range 60 {
				disturb(cl, rng)
				for range 4 {
					h.burst()
					pass(time.Duration(rng.IntN(100)) * time.Millisecond)
				}
			}
			h.calm()
			h.recover()
			h.verify()
			cl.same()
		}, func(cl *cluster) { cl.settings.Horizon = 3600e9 })
	})
}

// burst sends some new ids and some old ones, mostly to whoever leads.
func (h *history) burst() {
	r := h.cl.replicas[h.rng.IntN(3)]
	if l := leading(h.cl.replicas); l != nil && h.rng.IntN(8) > 0 {
		r = l
	}
	var ids []*idHistory
	var qs []partition.Request
	for range 1 + h.rng.IntN(6) {
		var id *idHistory
		if len(h.ids) > 0 && h.rng.IntN(3) == 0 {
			id = h.ids[len(h.ids)-1-h.rng.IntN(min(len(h.ids), 20))]
		} else {
			id = h.fresh()
		}
		q := id.request
		if h.rng.IntN(4) == 0 {
			q.Deadline = max(1, r.clock.Monotonic()+h.rng.Int64N(20e6))
		}
		ids, qs = append(ids, id), append(qs, q)
	}
	for i, s := range r.submit(qs...) {
		h.sent = append(h.sent, pendingSend{ids[i], s})
	}
	h.hear(false)
}

func (h *history) fresh() *idHistory {
	key := hotKeys[h.rng.IntN(len(hotKeys))]
	id := &idHistory{request: h.cl.request("counted", key), key: key}
	id.request.Unfenced, id.request.Fence = false, h.known
	h.ids = append(h.ids, id)
	return id
}

// hear takes in the answers that have come, or waits for all.
func (h *history) hear(all bool) {
	h.sent = slices.DeleteFunc(h.sent, func(p pendingSend) bool {
		if all {
			p.s.wait()
		}
		select {
		case <-p.s.done:
			h.learn(p.id, p.s.Outcome)
			return true
		default:
			return false
		}
	})
}

func (h *history) learn(id *idHistory, o partition.Outcome) {
	t := h.cl.t
	switch o.Result {
	case partition.Allowed:
		if id.allowed && id.at != o.Time {
			t.Errorf("id %x was allowed at %d and at %d", id.request.ID, id.at, o.Time)
		}
		id.allowed, id.at = true, o.Time
		h.known = max(h.known, o.Time)
	case partition.Unknown:
		id.unknown = true
	case partition.Denied, partition.NotLeader, partition.NoQuorum, partition.Overloaded, partition.Late, partition.Stopping:
	default:
		t.Errorf("id %x: %s", id.request.ID, name(o.Result))
	}
}

// calm lets everything heal.
func (h *history) calm() {
	h.cl.network.Heal()
	for _, r := range h.cl.replicas {
		if r.group.Load() == nil {
			r.start()
		}
		r.disk.slow(0)
	}
	pass(5 * time.Second)
	h.hear(true)
}

// recover asks again for every id that has an allow or may have one, and once
// more for some.
func (h *history) recover() {
	r := h.cl.leader()
	for _, id := range h.ids {
		if !id.allowed && !id.unknown {
			continue
		}
		for range 1 + h.rng.IntN(2) {
			o := r.ask(id.request)
			if id.allowed && (o.Result != partition.Allowed || !o.Answer.Replayed) {
				h.cl.t.Errorf("the allow of id %x is gone: %s", id.request.ID, name(o.Result))
			}
			h.learn(id, o)
		}
	}
}

// verify counts.
func (h *history) verify() {
	t, r, total := h.cl.t, h.cl.leader(), 0
	for _, key := range hotKeys {
		var times []int64
		for _, id := range h.ids {
			if id.key == key && id.allowed {
				times = append(times, id.at)
			}
		}
		total += len(times)
		if used := r.used("counted", key, 1); used != uint64(len(times)) {
			t.Errorf("%s: %d ids have an allow and %d events are recorded", key, len(times), used)
		}
		slices.SortFunc(times, cmp.Compare)
		for i := range times {
			// The window that begins with this event is half open: one exactly its length later is out of it.
			if j := i + 4; j < len(times) && times[j]-times[i] < int64(3*time.Second) {
				t.Errorf("%s: five events within %v", key, time.Duration(times[j]-times[i]))
			}
		}
	}
	if total < 20 {
		t.Errorf("only %d allows of %d ids: hardly tried", total, len(h.ids))
	}
	t.Logf("%d ids, %d allows, %d of an outcome that was unknown", len(h.ids), total, h.unknown())
}

func (h *history) unknown() (n int) {
	for _, id := range h.ids {
		if id.unknown {
			n++
		}
	}
	return n
}
