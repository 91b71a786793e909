package client_test

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// play runs f in virtual time on a network that A leads, with a client that knows it.
func play(t *testing.T, partitions uint32, before, f func(*scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := led(t, partitions)
		defer n.stop()
		s := &scene{T: t, network: n, a: n.nodes[nodeA], b: n.nodes[nodeB], timeout: client.DefaultTimeout}
		before(s)
		s.client = n.client()
		defer func() { s.client.Close() }() // the last one, if there were several
		synctest.Wait()
		f(s)
	})
}

// answering is the usual before: A answers in turn.
func answering(rs ...reply) func(*scene) {
	return func(s *scene) { s.a.answer = each(rs...) }
}

// TestASecondSendFindsTheAnswer: what was unknown, or not to be had, is asked again under the same id and
// fence until the deadline, and the answer is whatever it then is.
func TestASecondSendFindsTheAnswer(t *testing.T) {
	replayed := allow()
	replayed.Replayed = true
	strange := allow()
	strange.DecisionId, strange.Partition = []byte("of another check"), 0
	elsewhere := allow()
	elsewhere.Partition = 7
	look := allow()
	look.Decision = quotav1.Decision_DECISION_WOULD_ALLOW
	undecided := allow()
	undecided.Decision = 99
	for name, r := range map[string]reply{
		"outcome unknown":       fails(quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN),
		"no reason":             fails(quotav1.FailureReason_FAILURE_REASON_UNSPECIFIED),
		"a reason of tomorrow":  fails(77),
		"no quorum":             fails(quotav1.FailureReason_FAILURE_REASON_NO_QUORUM),
		"clock":                 fails(quotav1.FailureReason_FAILURE_REASON_CLOCK),
		"shutting down":         fails(quotav1.FailureReason_FAILURE_REASON_SHUTTING_DOWN),
		"policy pending":        fails(quotav1.FailureReason_FAILURE_REASON_POLICY_PENDING),
		"stream broken":         {broken: true},
		"neither":               {other: true},
		"another check's":       {answer: strange, raw: true},
		"another partition's":   {answer: elsewhere, raw: true},
		"a look":                {answer: look},
		"a decision of the day": {answer: undecided},
	} {
		for want, second := range map[string]reply{"allow": {answer: replayed}, "deny": {answer: deny(time.Second)}} {
			t.Run(name+", "+want, func(t *testing.T) {
				play(t, 1, answering(r, second), func(s *scene) {
					s.want(s.check(), want)
					s.oneID()
					if n := len(s.sends()); n != 2 {
						s.Errorf("%d sends", n)
					}
				})
			})
		}
	}
}

// TestAnUnknownOutcomeStaysUnknown whatever comes after it, unless that is an answer.
func TestAnUnknownOutcomeStaysUnknown(t *testing.T) {
	for _, then := range []quotav1.FailureReason{
		quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT, quotav1.FailureReason_FAILURE_REASON_NO_QUORUM,
		quotav1.FailureReason_FAILURE_REASON_CLOCK, quotav1.FailureReason_FAILURE_REASON_OVERLOADED,
		quotav1.FailureReason_FAILURE_REASON_MEMORY, quotav1.FailureReason_FAILURE_REASON_QUARANTINE,
		quotav1.FailureReason_FAILURE_REASON_POLICY_PENDING, quotav1.FailureReason_FAILURE_REASON_DECISION_ID_CONFLICT,
		quotav1.FailureReason_FAILURE_REASON_SHUTTING_DOWN, quotav1.FailureReason_FAILURE_REASON_DEADLINE,
		quotav1.FailureReason_FAILURE_REASON_NOT_SUPPORTED, quotav1.FailureReason_FAILURE_REASON_PERMISSION_DENIED,
	} {
		t.Run(then.String(), func(t *testing.T) {
			play(t, 1, answering(reply{broken: true}, fails(then)), func(s *scene) {
				s.want(s.check(), "OUTCOME_UNKNOWN")
				s.oneID()
			})
		})
	}
}

// TestTheFenceIsTheNewestLoggedTime: of the watch, and of allows that were decided anew. Other answers have a
// time that may not be logged.
func TestTheFenceIsTheNewestLoggedTime(t *testing.T) {
	at := func(change func(*quotav1.Answer)) reply {
		a := allow()
		a.DecisionTimeNs = 5000
		change(a)
		return reply{answer: a}
	}
	denied := deny(time.Minute)
	denied.DecisionTimeNs = 5000
	for name, c := range map[string]struct {
		first reply
		fence int64
	}{
		"allow":    {at(func(*quotav1.Answer) {}), 5000},
		"replayed": {at(func(a *quotav1.Answer) { a.Replayed = true }), 1000},
		"no match": {at(func(a *quotav1.Answer) { a.Reason = quotav1.Reason_REASON_NO_MATCH_ALLOWED }), 1000},
		"deny":     {reply{answer: denied}, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, answering(c.first, allowed), func(s *scene) {
				s.check()
				s.check(func(m *quotav1.CheckRequest) { m.Descriptors[0] = descriptor("user", "u2") })
				if all := s.sends(); all[0].GetCheck().GetFenceNs() != 1000 || all[1].GetCheck().GetFenceNs() != c.fence {
					s.Errorf("fences %d and %d", all[0].GetCheck().GetFenceNs(), all[1].GetCheck().GetFenceNs())
				}
				s.a.news <- &quotav1.WatchResponse{Partitions: []*quotav1.PartitionRoute{route(0, nodeA, 1, 9000)}}
				synctest.Wait()
				s.check(func(m *quotav1.CheckRequest) { m.Descriptors[0] = descriptor("user", "u3") })
				if all := s.sends(); all[2].GetCheck().GetFenceNs() != 9000 {
					s.Errorf("the fence is %d", all[2].GetCheck().GetFenceNs())
				}
			})
		})
	}
}

// TestAFenceStaysWithItsID though newer times become known between its sends.
func TestAFenceStaysWithItsID(t *testing.T) {
	play(t, 1, func(s *scene) {
		s.a.answer = func(n int, _ *quotav1.TaggedCheck) reply {
			s.a.news <- &quotav1.WatchResponse{Partitions: []*quotav1.PartitionRoute{route(0, nodeA, 1, 1000+int64(n))}}
			if n < 4 {
				return fails(quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN)
			}
			return allowed
		}
	}, func(s *scene) {
		s.want(s.check(), "allow")
		s.oneID()
		if n := len(s.sends()); n != 4 {
			s.Errorf("%d sends", n)
		}
	})
}

// TestAStalePolicyIsAskedAgainAsTheLeaderResolvesIt, where the leader says, under the same id.
func TestAStalePolicyIsAskedAgainAsTheLeaderResolvesIt(t *testing.T) {
	resolution := &quotav1.Resolution{SetEpoch: 1, SetVersion: 5, Policies: []*quotav1.ResolvedPolicy{
		{Policy: "default/new", Revision: make([]byte, 8), Key: []byte("key"), Partition: 1},
	}}
	play(t, 2, func(s *scene) {
		s.a.first.Partitions[1] = route(1, nodeB, 1, 7777)
		s.b.first = s.a.first
		s.a.answer, s.b.answer = always(stalePolicy(resolution)), always(allowed)
	}, func(s *scene) {
		s.want(s.check(func(m *quotav1.CheckRequest) { m.Descriptors[0] = descriptor("user", userIn(0, 2)) }), "allow")
		first, second := s.a.sends(), s.b.sends()
		if len(first) != 1 || len(second) != 1 {
			s.Fatalf("%d sends to A, %d to B", len(first), len(second))
		}
		m := second[0].GetCheck()
		if !bytes.Equal(m.GetDecisionId(), first[0].GetCheck().GetDecisionId()) || m.GetPartition() != 1 || m.GetFenceNs() != 7777 ||
			m.GetResolution().GetSetVersion() != 5 || len(m.GetResolution().GetPolicies()) != 1 {
			s.Errorf("asked again with %v", m)
		}
	})
}

// TestANonsenseResolutionIsNotFollowed.
func TestANonsenseResolutionIsNotFollowed(t *testing.T) {
	for name, r := range map[string]*quotav1.Resolution{
		"none":       nil,
		"partition":  {Policies: []*quotav1.ResolvedPolicy{{Partition: 1}}},
		"descriptor": {Policies: []*quotav1.ResolvedPolicy{{DescriptorIndex: 1}}},
		"twice":      {Policies: []*quotav1.ResolvedPolicy{{}, {}}},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, answering(stalePolicy(r), allowed), func(s *scene) { s.want(s.check(), "NO_QUORUM") })
		})
	}
}

// TestAStaleTimeIsAskedOnceMoreUnderANewID.
func TestAStaleTimeIsAskedOnceMoreUnderANewID(t *testing.T) {
	play(t, 1, answering(staleTime(8000), allowed), func(s *scene) {
		ctx := context.Background()
		a, err := s.client.Check(ctx, asks("user", "u1"))
		all := s.sends()
		if err != nil || len(all) != 2 || all[1].GetCheck().GetFenceNs() != 8000 || !bytes.Equal(a.GetDecisionId(), all[1].GetCheck().GetDecisionId()) ||
			bytes.Equal(all[0].GetCheck().GetDecisionId(), all[1].GetCheck().GetDecisionId()) {
			s.Errorf("%v, %v: %v", a, err, all)
		}
		s.want(s.check(func(m *quotav1.CheckRequest) { m.Descriptors[0] = descriptor("user", "u2") }), "allow")
		if f := s.sends()[2].GetCheck().GetFenceNs(); f != 8000 {
			s.Errorf("the next check's fence is %d", f)
		}
	})
}

// TestACallersOwnIDOutlivesAStaleTime: by it the caller finds its allow again.
func TestACallersOwnIDOutlivesAStaleTime(t *testing.T) {
	play(t, 1, answering(staleTime(8000), allowed), func(s *scene) {
		own := bytes.Repeat([]byte{7}, 16)
		question := asks("user", "u1")
		question.DecisionId = own
		a, err := s.client.Check(context.Background(), question)
		all := s.sends()
		if err != nil || !bytes.Equal(a.GetDecisionId(), own) || len(all) != 2 || all[1].GetCheck().GetFenceNs() != 8000 ||
			!bytes.Equal(all[0].GetCheck().GetDecisionId(), own) || !bytes.Equal(all[1].GetCheck().GetDecisionId(), own) {
			s.Errorf("%v, %v: %v", a, err, all)
		}
	})
}

// TestALeaderThatIsNotKnownIsWaitedFor, and a check that waits goes as soon as it is.
func TestALeaderThatIsNotKnownIsWaitedFor(t *testing.T) {
	play(t, 1, func(s *scene) {
		s.a.first, s.b.first = clusterOf(1, ""), clusterOf(1, "")
	}, func(s *scene) {
		go func() {
			time.Sleep(50 * time.Millisecond)
			s.a.news <- &quotav1.WatchResponse{Partitions: []*quotav1.PartitionRoute{route(0, nodeB, 2, 2000)}}
		}()
		begin := time.Now()
		s.want(s.check(), "allow")
		if took := time.Since(begin); took > 60*time.Millisecond || len(s.b.sends()) != 1 || len(s.a.sends()) != 0 {
			s.Errorf("it took %v, with %d sends to A and %d to B", took, len(s.a.sends()), len(s.b.sends()))
		}
	})
}

// TestAnyNodeSaysWhoLeads where the watch doesn't.
func TestAnyNodeSaysWhoLeads(t *testing.T) {
	play(t, 1, func(s *scene) {
		s.a.first, s.b.first = clusterOf(1, ""), clusterOf(1, "")
		s.a.answer = always(sentOn(nodeB))
	}, func(s *scene) {
		s.want(s.check(), "allow")
		s.oneID()
		if len(s.b.sends()) != 1 {
			s.Errorf("%d sends to B", len(s.b.sends()))
		}
	})
}

// TestACorrectionBeatsNewsOfAnOlderTerm, and not those of a newer one.
func TestACorrectionBeatsNewsOfAnOlderTerm(t *testing.T) {
	play(t, 1, func(s *scene) { s.a.answer = each(sentOn(nodeB), allowed) }, func(s *scene) {
		user := 0
		ask := func() (asked []string) {
			a, b := len(s.a.sends()), len(s.b.sends())
			user++
			s.want(s.check(func(m *quotav1.CheckRequest) { m.Descriptors[0] = descriptor("user", string(rune('a'+user))) }), "allow")
			if len(s.a.sends()) > a {
				asked = append(asked, "A")
			}
			if len(s.b.sends()) > b {
				asked = append(asked, "B")
			}
			return asked
		}
		news := func(leader string, term uint64) {
			s.a.news <- &quotav1.WatchResponse{Partitions: []*quotav1.PartitionRoute{route(0, leader, term, 3000)}}
			synctest.Wait()
		}
		for _, step := range []struct {
			leader string
			term   uint64
			want   []string
		}{{"", 0, []string{"A", "B"}}, {nodeA, 1, []string{"B"}}, {"", 2, []string{"B"}}, {nodeA, 3, []string{"A"}}, {nodeB, 2, []string{"A"}}} {
			if step.term > 0 {
				news(step.leader, step.term)
			}
			if asked := ask(); !slices.Equal(asked, step.want) {
				s.Errorf("after news of %q in term %d: asked %v, not %v", step.leader, step.term, asked, step.want)
			}
		}
	})
}
