package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/test/rig"
)

// TestTwoGatewaysRacingForTheLastSlots: each check takes from a user's allowance and from a team's, which live in
// several partitions. Two clients and the front of a gateway race until nothing is left, while a leader dies. No
// key ever gets one too many, and what was allowed is charged to both.
func TestTwoGatewaysRacingForTheLastSlots(t *testing.T) {
	t.Parallel()
	n := found(t, rig.Shape{Policies: raceText()})
	front := n.Gateway(t).Line(t, "http ")
	r := race{told: map[string]int{}, ids: map[string][2]string{}}
	c, leader := n.Client(t), n.Leader(t, 0)
	var askers sync.WaitGroup
	for _, with := range []*client.Client{c, n.Client(t)} {
		for range 6 {
			askers.Go(func() { r.askAll(t, with) })
		}
	}
	for range 6 {
		askers.Go(func() { r.getAll(t, front) })
	}
	rig.Eventually(t, "allows", func() bool { return r.allows() >= 200 })
	n.Kill(t, leader)
	n.Begin(t, leader)
	n.Ready(t, leader)
	askers.Wait()

	r.verify(t, c)
}

const (
	users, teams      = 5, 4
	perUser, perTeam  = 160, 200
	questionsPerRacer = 150
	userEntry         = "user"
	teamEntry         = "team"
)

// raceText is a policy file with two allowances whose keys live apart.
func raceText() string {
	const one = "- name: %[1]ss\n  domain: %[2]s\n  key: [%[1]s]\n  limits:\n  - {name: hourly, rollingWindow: {limit: %[3]d, window: 1h}}\n"
	return "policies:\n" + fmt.Sprintf(one, userEntry, domain, perUser) + fmt.Sprintf(one, teamEntry, domain, perTeam)
}

// race is what racers were told.
type race struct {
	mu      sync.Mutex
	told    map[string]int       // allows, by "user=u1" or "team=t1"
	ids     map[string][2]string // of those that the clients were told
	all     int
	denials int
	failed  int
}

func (r *race) allows() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// somePair is a user and a team.
func somePair() [2]string {
	return [2]string{fmt.Sprintf("u%d", rand.N(users)), fmt.Sprintf("t%d", rand.N(teams))}
}

func (r *race) note(id string, pair [2]string) {
	r.told[userEntry+"="+pair[0]]++
	r.told[teamEntry+"="+pair[1]]++
	r.all++
	if id != "" {
		r.ids[id] = pair
	}
}

func descriptorsOf(pair [2]string) []*quotav1.Descriptor {
	return []*quotav1.Descriptor{single(userEntry, pair[0]), single(teamEntry, pair[1])}
}

func single(name, value string) *quotav1.Descriptor {
	return &quotav1.Descriptor{Entries: []*quotav1.Entry{{Name: name, Value: []byte(value)}}}
}

// askAll asks through a client.
func (r *race) askAll(t *testing.T, c *client.Client) {
	for range questionsPerRacer {
		id, pair := newID(), somePair()
		a := askPair(c, id, pair)
		r.mu.Lock()
		switch {
		case a == nil:
			r.failed++
		case a.GetDecision() == quotav1.Decision_DECISION_ALLOW:
			r.note(id, pair)
		case a.GetDecision() == quotav1.Decision_DECISION_DENY:
			r.denials++
		default:
			t.Errorf("neither an allow nor a denial: %v", a)
		}
		r.mu.Unlock()
	}
}

// askPair asks once; nil: there was no answer.
func askPair(c *client.Client, id string, pair [2]string) *quotav1.Answer {
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	a, err := c.Check(ctx, &quotav1.CheckRequest{Domain: domain, Descriptors: descriptorsOf(pair), DecisionId: []byte(id)})
	if err != nil {
		return nil
	}
	return a
}

// getAll asks at a front.
func (r *race) getAll(t *testing.T, front string) {
	for range questionsPerRacer {
		pair := somePair()
		body, err := json.Marshal(map[string]any{"domain": domain, "descriptors": []map[string]string{{userEntry: pair[0]}, {teamEntry: pair[1]}}})
		if err != nil {
			t.Error(err)
			return
		}
		response, err := http.Post("http://"+front+"/check", "application/json", strings.NewReader(string(body)))
		if err != nil {
			t.Error(err)
			return
		}
		response.Body.Close()
		r.mu.Lock()
		switch response.StatusCode {
		case allowed:
			r.note("", pair)
		case denied:
			r.denials++
		case unavailable:
			r.failed++
		default:
			t.Errorf("status %d", response.StatusCode)
		}
		r.mu.Unlock()
	}
}

// verify holds what is used up to what was told. A check that was charged to one key and then refused for the
// other costs the first one a slot: more may be used up than was told, but never more than the limit.
func (r *race) verify(t *testing.T, c *client.Client) {
	t.Helper()
	each(r.ids, func(id string, pair [2]string) {
		rig.Persist(t, "a replayed allow", func() bool {
			a := askPair(c, id, pair)
			if a != nil && (a.GetDecision() != quotav1.Decision_DECISION_ALLOW || !a.GetReplayed()) {
				t.Errorf("id %x of %v was allowed; asked again: %v", id, pair, a)
			}
			return a != nil
		})
	})
	full := 0
	check := func(name, value string, limit int) {
		used, told := usedOf(t, c, single(name, value)), r.told[name+"="+value]
		if told > limit || used > limit || used < told {
			t.Errorf("%s=%s: %d were allowed, %d are used up, the limit is %d", name, value, told, used, limit)
		}
		if used == limit {
			full++
		}
	}
	for i := range users {
		check(userEntry, fmt.Sprintf("u%d", i), perUser)
	}
	for i := range teams {
		check(teamEntry, fmt.Sprintf("t%d", i), perTeam)
	}
	t.Logf("%d allows, %d denials, %d without an answer; %d of %d keys are used up: %v", r.all, r.denials, r.failed, full, users+teams, r.told)
	if full == 0 {
		t.Error("no key was used up: there was no race")
	}
}
