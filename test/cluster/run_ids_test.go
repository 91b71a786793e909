package cluster_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/test/rig"
)

// checkAs asks for an account under an id, until there is an answer.
func checkAs(t *testing.T, c *client.Client, id, account string) (a *quotav1.Answer) {
	rig.Persist(t, "an answer", func() bool {
		var err error
		a, err = tryAs(c, id, account)
		return err == nil
	})
	return a
}

func tryAs(c *client.Client, id, account string) (*quotav1.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	return c.Check(ctx, &quotav1.CheckRequest{Domain: domain, Descriptors: []*quotav1.Descriptor{descriptorOf(account)}, DecisionId: []byte(id)})
}

// copiesOf asks a hundred times at once for the same, through all clients, and returns the answers.
func copiesOf(t *testing.T, clients []*client.Client, id, account string) []*quotav1.Answer {
	t.Helper()
	answers := make([]*quotav1.Answer, 100)
	var asking sync.WaitGroup
	for i := range answers {
		asking.Go(func() { answers[i] = checkAs(t, clients[i%len(clients)], id, account) })
	}
	asking.Wait()
	return answers
}

// TestDED04AHundredCopiesThroughThreeClientsAreOneEvent: on a key with one unit left all of them are that one allow,
// and on a full key all are denied.
func TestDED04AHundredCopiesThroughThreeClientsAreOneEvent(t *testing.T) {
	t.Parallel()
	const limit = 3
	n := found(t, rig.Shape{Policies: hourlyText(limit)})
	clients := []*client.Client{n.Client(t), n.Client(t), n.Client(t)}
	for range limit - 1 {
		checkAs(t, clients[0], newID(), "last")
	}
	at := map[int64]int{}
	for _, a := range copiesOf(t, clients, newID(), "last") {
		if a.GetDecision() != quotav1.Decision_DECISION_ALLOW {
			t.Errorf("answered %v", a)
		}
		at[a.GetDecisionTimeNs()]++
	}
	if len(at) != 1 {
		t.Errorf("allowed at %v", at)
	}
	for _, a := range copiesOf(t, clients, newID(), "last") {
		if a.GetDecision() != quotav1.Decision_DECISION_DENY {
			t.Errorf("on a full key: answered %v", a)
		}
	}
	if used := usedOf(t, clients[0], descriptorOf("last")); used != limit {
		t.Errorf("%d units are used up, of %d", used, limit)
	}
}

// TestDED01DED08AnIDOutlivesItsLeader: what a leader allowed that has died since, the next one answers again and charges
// nothing. An id that nobody could decide on, because most nodes were gone, is decided on once they are back.
func TestDED01DED08AnIDOutlivesItsLeader(t *testing.T) {
	t.Parallel()
	n := found(t, rig.Shape{Policies: hourlyText(3), Partitions: 1})
	known, lost := newID(), newID()
	was := checkAs(t, n.Client(t), known, "one") // and the reply is lost on the way to whoever asked
	dead := n.Leader(t, 0)
	n.Kill(t, dead)
	c := n.Client(t)
	again := checkAs(t, c, known, "one")
	if again.GetDecision() != quotav1.Decision_DECISION_ALLOW || !again.GetReplayed() || again.GetDecisionTimeNs() != was.GetDecisionTimeNs() {
		t.Errorf("allowed: %v; asked again: %v", was, again)
	}
	if used := usedOf(t, c, descriptorOf("one")); used != 1 {
		t.Errorf("%d units are used up by one id", used)
	}

	second := n.Leader(t, 0)
	n.Kill(t, second)
	if a, err := tryAs(c, lost, "one"); err == nil {
		t.Errorf("without a majority: answered %v", a)
	}
	n.Begin(t, dead, second)
	n.Ready(t, dead, second)
	began := time.Now()
	a := checkAs(t, c, lost, "one")
	if a.GetDecision() != quotav1.Decision_DECISION_ALLOW {
		t.Errorf("with a majority again: answered %v", a)
	}
	if used := usedOf(t, c, descriptorOf("one")); used != 2 {
		t.Errorf("%d units are used up by two ids", used)
	}
	t.Logf("decided %v after the nodes were back", time.Since(began).Round(time.Millisecond))
}
