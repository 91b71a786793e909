package client_test

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// scene is one row of the table of states in doc.go, played.
type scene struct {
	*testing.T
	*network
	a, b    *scripted
	client  *client.Client
	timeout time.Duration
}

// check asks for u1 and says what came of it: "allow", "deny" or the reason.
func (s *scene) check(change ...func(*quotav1.CheckRequest)) string {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	m := asks("user", "u1")
	for _, f := range change {
		f(m)
	}
	return said(s.client.Check(ctx, m))
}

func said(a *quotav1.Answer, err error) string {
	if err != nil {
		return reasonOf(err)
	}
	return strings.ToLower(a.GetDecision().String()[len("DECISION_"):])
}

func (s *scene) want(got, want string) {
	s.Helper()
	if got != want {
		s.Errorf("the caller gets %s, not %s", got, want)
	}
}

// sends is everything that both nodes were asked.
func (s *scene) sends() []*quotav1.TaggedCheck { return append(s.a.sends(), s.b.sends()...) }

// oneID demands that all sends have one id and one fence.
func (s *scene) oneID() {
	s.Helper()
	all := s.sends()
	for _, m := range all {
		if !bytes.Equal(m.GetCheck().GetDecisionId(), all[0].GetCheck().GetDecisionId()) ||
			m.GetCheck().GetFenceNs() != all[0].GetCheck().GetFenceNs() || m.GetCheck().FenceNs == nil {
			s.Errorf("a send has another id or fence:\n%v\n%v", m, all[0])
		}
	}
}

// always answers every check alike; each answers the first ones in turn, and the rest as the last.
func always(r reply) func(int, *quotav1.TaggedCheck) reply { return each(r) }

func each(rs ...reply) func(int, *quotav1.TaggedCheck) reply {
	return func(n int, _ *quotav1.TaggedCheck) reply { return rs[min(n, len(rs))-1] }
}

var (
	unknown = quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN
	allowed = reply{answer: allow()}
)

// scenes are the rows, by name. before is played before there is a client.
var scenes = map[string]struct {
	before func(*scene)
	play   func(*scene)
	config func(*client.Config)
}{
	"no route": {
		before: func(s *scene) { s.a.first, s.b.first = nil, nil },
		play:   func(s *scene) { s.want(s.check(), "NO_QUORUM") },
	},
	"no time": {
		before: func(s *scene) {
			for _, r := range s.a.first.Partitions {
				r.DecisionTimeNs = nil
			}
			s.b.first = s.a.first
		},
		play: func(s *scene) { s.want(s.check(), "NO_QUORUM") },
	},
	"leader unknown": {
		before: func(s *scene) {
			s.a.first, s.b.first = clusterOf(1, ""), clusterOf(1, "")
			s.a.answer, s.b.answer = always(sentOn("")), always(sentOn(""))
		},
		play: func(s *scene) { s.want(s.check(), "NO_QUORUM") },
	},
	"stale route": {
		before: func(s *scene) { s.a.answer = always(sentOn(nodeB)) },
		play: func(s *scene) {
			s.want(s.check(), "allow")
			s.oneID()
		},
	},
	"leader moved": {
		before: func(s *scene) { s.a.answer = always(reply{silent: true}) },
		play: func(s *scene) {
			go func() {
				time.Sleep(100 * time.Millisecond)
				s.a.news <- &quotav1.WatchResponse{Partitions: []*quotav1.PartitionRoute{route(0, nodeB, 2, 9000)}}
			}()
			s.want(s.check(), "allow")
			s.oneID()
		},
	},
	"unreachable": {
		before: func(s *scene) { s.a.first, s.b.first = clusterOf(1, "127.0.0.1:7009"), clusterOf(1, "127.0.0.1:7009") },
		play:   func(s *scene) { s.want(s.check(), "NO_QUORUM") },
	},
	"stream broken": {
		before: func(s *scene) { s.a.answer = each(reply{broken: true}, allowed) },
		play: func(s *scene) {
			s.want(s.check(), "allow")
			s.oneID()
		},
	},
	"outcome unknown": {
		before: func(s *scene) { s.a.answer = always(fails(unknown)) },
		play: func(s *scene) {
			s.want(s.check(), "OUTCOME_UNKNOWN")
			s.oneID()
		},
	},
	"no quorum": {
		before: func(s *scene) { s.a.answer = always(fails(quotav1.FailureReason_FAILURE_REASON_NO_QUORUM)) },
		play:   func(s *scene) { s.want(s.check(), "NO_QUORUM") },
	},
	"policy pending": {
		before: func(s *scene) { s.a.answer = always(fails(quotav1.FailureReason_FAILURE_REASON_POLICY_PENDING)) },
		play:   func(s *scene) { s.want(s.check(), "NO_QUORUM") },
	},
	"policy stale": {
		before: func(s *scene) {
			s.a.answer = func(n int, m *quotav1.TaggedCheck) reply {
				if n > 1 && m.GetCheck().GetResolution().GetSetVersion() != uint64(n) {
					s.Errorf("asked again with the resolution %v", m.GetCheck().GetResolution())
				}
				return stalePolicy(&quotav1.Resolution{SetEpoch: 1, SetVersion: uint64(n + 1)})
			}
		},
		play: func(s *scene) {
			s.want(s.check(), "NO_QUORUM")
			s.oneID()
		},
	},
	"stale conflict": {
		before: func(s *scene) {
			s.a.answer = each(stalePolicy(&quotav1.Resolution{}), fails(quotav1.FailureReason_FAILURE_REASON_DECISION_ID_CONFLICT))
		},
		play: func(s *scene) { s.want(s.check(), "OUTCOME_UNKNOWN") },
	},
	"conflict": {
		before: func(s *scene) { s.a.answer = always(fails(quotav1.FailureReason_FAILURE_REASON_DECISION_ID_CONFLICT)) },
		play:   func(s *scene) { s.want(s.check(), "DECISION_ID_CONFLICT") },
	},
	"stale time": {
		before: func(s *scene) { s.a.answer = always(staleTime(5000)) },
		play: func(s *scene) {
			s.want(s.check(), "NO_QUORUM")
			first, second := s.sends()[0].GetCheck(), s.sends()[1].GetCheck()
			if bytes.Equal(first.GetDecisionId(), second.GetDecisionId()) || first.GetFenceNs() != 1000 || second.GetFenceNs() != 5000 {
				s.Errorf("asked again:\n%v\n%v", first, second)
			}
		},
	},
	"stale unknown": {
		before: func(s *scene) { s.a.answer = each(fails(unknown), staleTime(5000)) },
		play: func(s *scene) {
			s.want(s.check(), "OUTCOME_UNKNOWN")
			s.oneID()
		},
	},
	"overloaded": {
		before: func(s *scene) { s.a.answer = always(fails(quotav1.FailureReason_FAILURE_REASON_OVERLOADED)) },
		play:   func(s *scene) { s.want(s.check(), "OVERLOADED") },
	},
	"many in flight": {
		before: func(s *scene) { s.a.first, s.b.first = nil, nil }, // so that nobody gets on
		config: func(c *client.Config) { c.MaxInFlight = 2 },
		play: func(s *scene) {
			for range 2 {
				go s.check()
			}
			synctest.Wait()
			s.want(s.check(), "OVERLOADED")
			time.Sleep(s.timeout + time.Millisecond)
			s.want(s.check(), "NO_QUORUM") // their places are free again
		},
	},
	"no room": {
		before: func(s *scene) { s.a.answer = always(fails(quotav1.FailureReason_FAILURE_REASON_MEMORY)) },
		play:   func(s *scene) { s.want(s.check(), "MEMORY") },
	},
	"deadline near": {
		play: func(s *scene) {
			s.timeout = 500 * time.Microsecond
			s.want(s.check(), "DEADLINE")
		},
	},
	"deadline passed": {
		before: func(s *scene) { s.a.answer = always(reply{silent: true}) },
		play: func(s *scene) {
			begin := time.Now()
			s.want(s.check(), "OUTCOME_UNKNOWN")
			if took := time.Since(begin); took != s.timeout {
				s.Errorf("it took %v", took)
			}
		},
	},
	"budget spent": {
		before: func(s *scene) {
			s.a.answer = func(_ int, m *quotav1.TaggedCheck) reply {
				if user := m.GetCheck().GetDescriptors()[0].GetEntries()[0].GetValue(); string(user) == "spender" {
					return fails(unknown)
				}
				return fails(quotav1.FailureReason_FAILURE_REASON_NO_QUORUM)
			}
		},
		play: func(s *scene) {
			for range 2000 {
				go s.check(func(m *quotav1.CheckRequest) { m.Descriptors[0] = descriptor("user", "spender") })
			}
			synctest.Wait() // nobody's pause is over, all have paid for it
			s.a.forget("spender")
			if s.want(s.check(), "NO_QUORUM"); len(s.sends()) > 1 { // nine tenths were left, and it had earned the tenth
				s.a.forget("u1")
				s.want(s.check(), "NO_QUORUM")
			}
			time.Sleep(s.timeout)
			s.a.forget("spender")
		},
	},
	"left epoch": {
		before: func(s *scene) {
			rewound := route(0, nodeA, 1, 10)
			rewound.Epoch = 2
			s.a.first.Partitions[0], s.b.first.Partitions[0] = rewound, rewound
		},
		play: func(s *scene) { s.want(s.check(), "OUTCOME_UNKNOWN") },
	},
	"unknown reason": {
		before: func(s *scene) {
			s.a.answer = always(reply{failure: &quotav1.Failure{Code: uint32(codes.Unauthenticated), Reason: 99}})
		},
		play: func(s *scene) { s.want(s.check(), "OUTCOME_UNKNOWN") },
	},
	"bad input": {
		before: func(s *scene) { s.a.answer = always(fails(quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT)) },
		play: func(s *scene) {
			s.want(s.check(), "INVALID_ARGUMENT")
			s.want(s.check(func(m *quotav1.CheckRequest) { m.Descriptors = nil }), "INVALID_ARGUMENT")
		},
	},
	"denied before": {
		before: func(s *scene) { s.a.answer = always(reply{answer: deny(time.Minute)}) },
		play: func(s *scene) {
			s.want(s.check(), "deny")
			s.a.forget("u1")
			s.want(s.check(), "deny")
		},
	},
	"closing": {
		before: func(s *scene) { s.a.answer = always(reply{silent: true}) },
		play: func(s *scene) {
			got := make(chan string)
			go func() { got <- s.check() }()
			synctest.Wait()
			s.client.Close()
			s.want(<-got, "OUTCOME_UNKNOWN")
			s.want(s.check(), "SHUTTING_DOWN")
		},
	},
	"several": {
		before: func(s *scene) {
			s.a.first, s.b.first = clusterOf(64, nodeA), clusterOf(64, nodeA)
			s.a.answer = func(_ int, m *quotav1.TaggedCheck) reply {
				if a := allow(); m.GetCheck().GetPeek() {
					a.Decision = quotav1.Decision_DECISION_WOULD_ALLOW
					return reply{answer: a}
				}
				return allowed
			}
		},
		play: func(s *scene) {
			s.want(s.check(func(m *quotav1.CheckRequest) { m.Descriptors = append(m.Descriptors, descriptor("host", "h1")) }), "allow")
			all := s.sends()
			if len(all) != 4 {
				s.Fatalf("%d sends", len(all))
			}
			for i, m := range all {
				if m.GetCheck().GetPeek() != (i < 2) {
					s.Errorf("send %d: %v", i, m)
				}
			}
			if all[2].GetCheck().GetPartition() >= all[3].GetCheck().GetPartition() {
				s.Error("not in order of partition")
			}
			s.oneID()
		},
	},
}

// forget drops what the node was asked about a user.
func (s *scripted) forget(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var kept []*quotav1.TaggedCheck
	for _, m := range s.asked {
		if string(m.GetCheck().GetDescriptors()[0].GetEntries()[0].GetValue()) != user {
			kept = append(kept, m)
		}
	}
	s.asked = kept
}

// TestStates plays every row of the table of doc.go, and no other: what the caller gets is the scene's to say,
// how often a check is sent is the table's.
func TestStates(t *testing.T) {
	rows := statesOfDoc(t)
	for name := range scenes {
		if rows[name] == "" {
			t.Errorf("%s is not in the table", name)
		}
	}
	for name, sends := range rows {
		row, ok := scenes[name]
		if !ok {
			t.Errorf("%s is in the table, and is not played", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := led(t, 1)
				defer n.stop()
				s := &scene{T: t, network: n, a: n.nodes[nodeA], b: n.nodes[nodeB], timeout: client.DefaultTimeout}
				if row.before != nil {
					row.before(s)
				}
				config := row.config
				if config == nil {
					config = func(*client.Config) {}
				}
				s.client = n.client(config)
				defer s.client.Close()
				synctest.Wait()
				row.play(s)
				least, most := sendsOf(t, sends)
				if got := len(s.sends()); got < least || got > most {
					t.Errorf("%d sends, the table says %s", got, sends)
				}
			})
		})
	}
}

// statesOfDoc reads the table: each state's name and sends.
func statesOfDoc(t *testing.T) map[string]string {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	_, table, _ := strings.Cut(string(text), "//\tstate ")
	table, _, _ = strings.Cut(table, "//\n")
	for line := range strings.Lines(table) {
		if row, ok := strings.CutPrefix(line, "//\t"); ok && len(row) > 93 {
			rows[strings.TrimSpace(row[:17])] = strings.TrimSpace(row[93:])
		}
	}
	if len(rows) < 20 {
		t.Fatalf("%d rows", len(rows))
	}
	return rows
}

// sendsOf reads "2", "2 to 8", "up to 8", "0 or 1" and, for two partitions, "1 and 1 each".
func sendsOf(t *testing.T, s string) (least, most int) {
	words := strings.Fields(s)
	number := func(i int) int {
		n, err := strconv.Atoi(words[i])
		if err != nil {
			t.Fatalf("sends: %q", s)
		}
		return n
	}
	switch {
	case len(words) == 1:
		return number(0), number(0)
	case words[0] == "up":
		return 0, number(2)
	case words[1] == "and":
		return 4, 4
	}
	return number(0), number(2)
}
