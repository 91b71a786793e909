package client_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/api/client/clienttest"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// over is a check over the partitions 0 to n-1 of n, with a user in each.
func over(n int) func(*quotav1.CheckRequest) {
	return func(m *quotav1.CheckRequest) {
		m.Descriptors = nil
		for p := range n {
			m.Descriptors = append(m.Descriptors, descriptor("user", userIn(p, n)))
		}
	}
}

// rounds answers looks and consuming sends, by partition; what isn't named is admitted.
func rounds(looks, sends map[uint32][]reply) func(int, *quotav1.TaggedCheck) reply {
	var mu sync.Mutex
	return func(_ int, m *quotav1.TaggedCheck) reply {
		mu.Lock()
		defer mu.Unlock()
		of, otherwise := sends, allow()
		if m.GetCheck().GetPeek() {
			of, otherwise.Decision = looks, quotav1.Decision_DECISION_WOULD_ALLOW
		}
		part := m.GetCheck().GetPartition()
		if rs := of[part]; len(rs) > 0 {
			if len(rs) > 1 {
				of[part] = rs[1:]
			}
			return rs[0]
		}
		return reply{answer: otherwise}
	}
}

// consumed lists the partitions that were asked to consume, in order.
func (s *scene) consumed() (parts []uint32) {
	for _, m := range s.sends() {
		if !m.GetCheck().GetPeek() {
			parts = append(parts, m.GetCheck().GetPartition())
		}
	}
	return parts
}

// TestACheckOverSeveralPartitions: looks everywhere, consumes in order, stops at the first refusal, and never
// says that nothing was consumed where something was.
func TestACheckOverSeveralPartitions(t *testing.T) {
	no, lost := reply{answer: deny(time.Minute)}, reply{broken: true}
	full, late := fails(quotav1.FailureReason_FAILURE_REASON_OVERLOADED), staleTime(3000)
	for name, c := range map[string]struct {
		looks, sends map[uint32][]reply
		want         string
		consumed     []uint32
	}{
		"all admit":                       {nil, nil, "allow", []uint32{0, 1, 2}},
		"a look is denied":                {map[uint32][]reply{1: {no}}, nil, "deny", nil},
		"a look fails":                    {map[uint32][]reply{2: {full}}, nil, "OVERLOADED", nil},
		"a look fails, one is denied":     {map[uint32][]reply{0: {full}, 2: {no}}, nil, "deny", nil},
		"a look is silent, one is denied": {map[uint32][]reply{0: {{silent: true}}, 2: {no}}, nil, "deny", nil},
		"a look is lost and repeated":     {map[uint32][]reply{1: {fails(quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN), {answer: allow()}}}, nil, "allow", []uint32{0, 1, 2}},
		"looks are lost":                  {map[uint32][]reply{1: {fails(quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN)}}, nil, "NO_QUORUM", nil},
		"the first refuses":               {nil, map[uint32][]reply{0: {no}}, "deny", []uint32{0}},
		"the second refuses":              {nil, map[uint32][]reply{1: {no}}, "deny", []uint32{0, 1}},
		"the first fails":                 {nil, map[uint32][]reply{0: {full}}, "OVERLOADED", []uint32{0}},
		"the second fails":                {nil, map[uint32][]reply{1: {full}}, "OUTCOME_UNKNOWN", []uint32{0, 1}},
		"the second is lost":              {nil, map[uint32][]reply{1: {lost, allowed}}, "allow", []uint32{0, 1, 1, 2}},
		"the first comes too late":        {nil, map[uint32][]reply{0: {late, allowed}}, "allow", []uint32{0, 0, 1, 2}},
		"the second comes too late":       {nil, map[uint32][]reply{1: {late, allowed}}, "OUTCOME_UNKNOWN", []uint32{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 3, func(s *scene) { s.a.answer = rounds(c.looks, c.sends) }, func(s *scene) {
				begin := time.Now()
				s.want(s.check(over(3)), c.want)
				if got := s.consumed(); !slices.Equal(got, c.consumed) {
					s.Errorf("consumed in %v, not %v", got, c.consumed)
				}
				if name != "the first comes too late" {
					s.oneID()
				}
				if took := time.Since(begin); c.want == "deny" && took > 0 {
					s.Errorf("a denial takes %v", took)
				}
			})
		})
	}
}

// TestTheAnswerOfSeveralIsTheTightestOne, and a replay only if all of them are.
func TestTheAnswerOfSeveralIsTheTightestOne(t *testing.T) {
	leaving := func(left uint64, replayed bool) []reply {
		a := allow()
		a.Remaining, a.Replayed = &left, replayed
		return []reply{{answer: a}}
	}
	endless := allow()
	endless.Remaining, endless.Unlimited, endless.Replayed = nil, true, true
	for _, all := range []bool{false, true} {
		play(t, 3, func(s *scene) {
			s.a.answer = rounds(nil, map[uint32][]reply{0: {{answer: endless}}, 1: leaving(1, true), 2: leaving(5, all)})
		}, func(s *scene) {
			m := asks()
			over(3)(m)
			a, err := s.client.Check(context.Background(), m)
			if err != nil || a.GetRemaining() != 1 || a.GetPartition() != 1 || a.GetReplayed() != all {
				s.Errorf("%v, %v", a, err)
			}
		})
	}
	short, long := deny(time.Second), deny(time.Minute)
	play(t, 2, func(s *scene) {
		s.a.answer = rounds(map[uint32][]reply{0: {{answer: long}}, 1: {{answer: short}}}, nil)
	}, func(s *scene) {
		m := asks()
		over(2)(m)
		if a, err := s.client.Check(context.Background(), m); err != nil || !slices.Contains([]int64{int64(time.Minute), int64(time.Second)}, a.GetWaitNs()) {
			s.Errorf("%v, %v", a, err)
		}
	})
}

// TestNeverOneTooManyOverSeveralPartitions: clients race for the last slots of overlapping sets of keys in
// several partitions, with answers lost on the way, and no key is ever admitted more than its limit.
func TestNeverOneTooManyOverSeveralPartitions(t *testing.T) {
	const most, keys, clients, callers, checks = 7, 12, 2, 8, 40
	cluster, err := clienttest.Start(clienttest.Config{Partitions: 5, Policies: fmt.Sprintf(`
policies:
- {name: users, domain: api, key: [user], limits: [{name: per-hour, rollingWindow: {limit: %d, window: 1h}}]}
`, most)})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	var mu sync.Mutex
	admitted, ids := map[string]int{}, map[string]bool{}
	var racing sync.WaitGroup
	for n := range clients {
		c, err := client.New(cluster.ClientConfig())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for caller := range callers {
			racing.Go(func() {
				random := rand.New(rand.NewPCG(uint64(n), uint64(caller)))
				for range checks {
					if random.IntN(8) == 0 {
						cluster.LoseNext()
					}
					m := &quotav1.CheckRequest{}
					for _, user := range random.Perm(keys)[:1+random.IntN(4)] {
						m.Descriptors = append(m.Descriptors, descriptor("user", fmt.Sprint(user)))
					}
					a, err := c.Check(context.Background(), m)
					if err != nil || a.GetDecision() != quotav1.Decision_DECISION_ALLOW {
						continue
					}
					mu.Lock()
					for _, d := range m.GetDescriptors() {
						admitted[string(d.GetEntries()[0].GetValue())]++
					}
					if ids[string(a.GetDecisionId())] {
						t.Error("two allows have one id")
					}
					ids[string(a.GetDecisionId())] = true
					mu.Unlock()
				}
			})
		}
	}
	racing.Wait()
	total := 0
	for user, n := range admitted {
		if total += n; n > most {
			t.Errorf("user %s was admitted %d times, the limit is %d", user, n, most)
		}
	}
	if total < most {
		t.Errorf("%d admissions in all", total)
	}
}
