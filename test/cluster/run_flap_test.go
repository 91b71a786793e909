package cluster_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/test/rig"
)

const (
	spells     = 6
	flapLimit  = 5
	flapWindow = 500 * time.Millisecond
	flapText   = `
policies:
- name: hot
  domain: ` + domain + `
  key: [principal]
  limits:
  - {name: short, rollingWindow: {limit: 5, window: 500ms}}
`
)

// FAIL-09: links between real nodes come and go, both ways and one way, while many ask for one key through two
// clients. By the decision times and ids of the answers no window ever holds more than its limit, leaders have changed
// and bytes were lost, and after each spell of faults somebody is admitted again.
func TestFAIL09FlappingLinksOfRealNodesAdmitNoMore(t *testing.T) {
	t.Parallel()
	web := rig.NewWeb()
	n := found(t, rig.Shape{Policies: flapText, Partitions: 1, Web: web})
	before, began := web.Tally(), n.sum(t, "quorate_raft_term")
	h := hotKey{allows: map[string]int64{}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var askers sync.WaitGroup
	for _, c := range []*client.Client{n.Client(t), n.Client(t)} {
		for range 4 {
			askers.Go(func() { h.ask(ctx, c) })
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range spells {
		flap(rng, web)
		web.Mend()
		terms := n.sum(t, "quorate_raft_term")
		web.Isolate(n.Leader(t, 0))
		rig.Eventually(t, "another leader", func() bool { return n.sum(t, "quorate_raft_term") > terms })
		flap(rng, web)
		web.Mend()
		admitted := h.count()
		rig.Eventually(t, "allows after a spell of faults", func() bool { return h.count() >= admitted+3*flapLimit })
	}
	stop()
	askers.Wait()
	h.verify(t)
	harm, terms := web.Tally().Minus(before), n.sum(t, "quorate_raft_term")-began
	t.Logf("%d allows, %d denials, %d not answered; %.0f terms, as nodes count them together, %d bytes lost", len(h.allows), h.denied, h.failed, terms, harm.Cut)
	if harm.Cut == 0 || terms < spells || h.denied == 0 {
		t.Error("hardly tried")
	}
}

// flap cuts and mends ways between nodes for a spell.
func flap(rng *rand.Rand, web *rig.Web) {
	for range 4 + rng.IntN(4) {
		one := names[rng.IntN(len(names))]
		other := rig.Others(one)[rng.IntN(2)]
		switch rng.IntN(4) {
		case 0:
			web.Cut(one, other)
		case 1:
			web.Cut(one, other)
			web.Cut(other, one)
		case 2:
			web.Isolate(one)
		case 3:
			web.Mend()
		}
		time.Sleep(time.Duration(50+rng.IntN(400)) * time.Millisecond)
	}
}

// hotKey is what many are told of one key.
type hotKey struct {
	mu             sync.Mutex
	allows         map[string]int64 // decision times, by id
	denied, failed int
	moved          bool // an id was allowed at two times
}

func (h *hotKey) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.allows)
}

func (h *hotKey) ask(ctx context.Context, c *client.Client) {
	for ctx.Err() == nil {
		a, err := c.Check(ctx, &quotav1.CheckRequest{Domain: domain, Descriptors: []*quotav1.Descriptor{descriptorOf("hot")}})
		h.note(a, err)
		time.Sleep(time.Duration(rand.N(20)) * time.Millisecond)
	}
}

func (h *hotKey) note(a *quotav1.Answer, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil:
		h.failed++
	case a.GetDecision() != quotav1.Decision_DECISION_ALLOW:
		h.denied++
	default:
		id := string(a.GetDecisionId())
		was, known := h.allows[id]
		h.moved = h.moved || known && was != a.GetDecisionTimeNs()
		h.allows[id] = a.GetDecisionTimeNs()
	}
}

// verify holds the admissions to the limit: none within a window of so many before it.
func (h *hotKey) verify(t *testing.T) {
	t.Helper()
	var times []int64
	for _, at := range h.allows {
		times = append(times, at)
	}
	slices.Sort(times)
	for i := flapLimit; i < len(times); i++ {
		if d := time.Duration(times[i] - times[i-flapLimit]); d < flapWindow {
			t.Errorf("%d admissions within %v", flapLimit+1, d)
		}
	}
	if h.moved {
		t.Error("an id was allowed at two times")
	}
}
