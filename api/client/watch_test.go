package client_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/policy"
)

// TestReadyIsRoutesTimesAndPolicies.
func TestReadyIsRoutesTimesAndPolicies(t *testing.T) {
	play(t, 2, func(s *scene) {
		s.b.first, s.a.sets = nil, nil
		s.a.first.Partitions[0].Address, s.a.first.Partitions[1].DecisionTimeNs = "", nil
	}, func(s *scene) {
		for step, m := range []*quotav1.WatchResponse{
			{Partitions: []*quotav1.PartitionRoute{route(0, nodeA, 1, 5)}},
			{Partitions: []*quotav1.PartitionRoute{route(1, nodeA, 1, 5)}},
			policiesOf(testSet(), 1),
		} {
			if s.client.Ready() || len(s.client.Domains()) != 0 {
				s.Errorf("ready before step %d", step)
			}
			s.a.news <- m
			synctest.Wait()
		}
		if d := s.client.Domains(); !s.client.Ready() || !slices.Equal(d, []string{"api"}) {
			s.Errorf("not ready; domains %v", d)
		}
	})
}

// TestTheNextNodeIsWatched when one is silent, gone, of another cluster or makes no sense.
func TestTheNextNodeIsWatched(t *testing.T) {
	for name, before := range map[string]func(*scripted){
		"not serving":                            func(a *scripted) { a.first = nil },
		"no cluster":                             func(a *scripted) { a.first.Cluster = nil },
		"no seed":                                func(a *scripted) { a.first.Cluster.Seed = nil },
		"no id":                                  func(a *scripted) { a.first.Cluster.Id = []byte("short") },
		"no slots":                               func(a *scripted) { a.first.Cluster.Slots = []byte{1} },
		"slots of partitions that there are not": func(a *scripted) { a.first.Cluster.Slots = slices.Repeat([]byte{0, 1}, 4096) },
		"no partitions":                          func(a *scripted) { a.first.Cluster.Partitions = 0 },
		"too many partitions":                    func(a *scripted) { a.first.Cluster.Partitions = 4097 },
		"a partition too many":                   func(a *scripted) { a.first.Partitions = append(a.first.Partitions, route(1, nodeA, 1, 1)) },
		"a set that doesn't add up": func(a *scripted) {
			bad := policiesOf(testSet(), 1)
			bad.Policies.Size++
			a.sets = []*quotav1.WatchResponse{bad}
		},
		"a set without a version": func(a *scripted) {
			bad := policiesOf(testSet(), 1)
			bad.Policies.Version = nil
			a.sets = []*quotav1.WatchResponse{bad}
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(s *scene) {
				s.b.first = proto.CloneOf(s.a.first)
				before(s.a)
			}, func(s *scene) {
				s.want(s.check(), "allow")
				if !s.client.Ready() {
					s.Error("not ready")
				}
			})
		})
	}
}

// TestASilentWatchIsLeft: a node that is cut off tells nothing, and the next one knows who leads by now.
func TestASilentWatchIsLeft(t *testing.T) {
	play(t, 1, func(s *scene) {
		s.a.mute, s.a.answer = true, always(reply{silent: true})
		s.b.first = clusterOf(1, nodeB)
		s.b.first.Partitions[0].Term = 2
	}, func(s *scene) {
		s.want(s.check(), "OUTCOME_UNKNOWN")
		time.Sleep(4 * time.Second)
		s.want(s.check(), "allow")
		if len(s.b.sends()) != 1 {
			s.Errorf("%d sends to B", len(s.b.sends()))
		}
	})
}

// TestAWatchWithoutNewsIsLeft: a node that tells every second that it has nothing to tell is cut off from the others.
func TestAWatchWithoutNewsIsLeft(t *testing.T) {
	play(t, 1, func(s *scene) {
		s.a.answer = always(reply{silent: true})
		s.b.first = clusterOf(1, nodeB)
		s.b.first.Partitions[0].Term = 2
	}, func(s *scene) {
		time.Sleep(5 * time.Second)
		s.want(s.check(), "OUTCOME_UNKNOWN")
		time.Sleep(5 * time.Second)
		s.want(s.check(), "allow")
		if len(s.a.sends()) != 1 || len(s.b.sends()) != 1 {
			s.Errorf("%d sends to A and %d to B", len(s.a.sends()), len(s.b.sends()))
		}
	})
}

// TestNewsKeepAWatch: few of them are enough, as in a cluster that has nothing to do.
func TestNewsKeepAWatch(t *testing.T) {
	play(t, 1, func(s *scene) { s.b.first = nil }, func(s *scene) {
		for i := range 20 {
			time.Sleep(5 * time.Second)
			s.a.news <- &quotav1.WatchResponse{Partitions: []*quotav1.PartitionRoute{route(0, nodeA, 1, int64(i)*5e9)}}
		}
		synctest.Wait()
		s.want(s.check(), "allow")
		if f := s.sends()[0].GetCheck().GetFenceNs(); f != 19*5e9 {
			s.Errorf("the fence is %d", f)
		}
	})
}

// TestAnotherClusterIsNotListenedTo, once one is known.
func TestAnotherClusterIsNotListenedTo(t *testing.T) {
	play(t, 1, func(s *scene) {
		s.a.mute, s.b.first = true, clusterOf(1, nodeB)
		s.b.first.Cluster.Id = []byte("of other people.")
		s.b.first.Partitions[0].Term = 9
	}, func(s *scene) {
		time.Sleep(20 * time.Second) // silence has sent the client to B, and back
		s.want(s.check(), "allow")
		if len(s.b.sends()) != 0 {
			s.Error("the other cluster is asked")
		}
	})
}

// TestASetComesInParts, and is taken when it is whole and newer.
func TestASetComesInParts(t *testing.T) {
	renamed := func(domain string) policy.Set {
		set := testSet()
		for i := range set.Policies {
			set.Policies[i].Domain = domain
		}
		return set
	}
	cut := func(set policy.Set, number uint64) (parts []*quotav1.WatchResponse) {
		whole := policiesOf(set, number).Policies
		for i := range whole.Json {
			part := proto.CloneOf(whole)
			part.Json, part.Last = whole.Json[i:i+1], i == len(whole.Json)-1
			parts = append(parts, &quotav1.WatchResponse{Policies: part})
		}
		return parts
	}
	play(t, 1, func(*scene) {}, func(s *scene) {
		tell := func(parts []*quotav1.WatchResponse, domain string) {
			s.Helper()
			for _, m := range parts {
				s.a.news <- m
			}
			synctest.Wait()
			if d := s.client.Domains(); !slices.Equal(d, []string{domain}) {
				s.Errorf("domains %v, not %s", d, domain)
			}
		}
		second := cut(renamed("second"), 2)
		tell(second[:len(second)-1], "api")
		tell(second[len(second)-1:], "second")
		tell(cut(renamed("first"), 1), "second")
		tell(cut(renamed("again"), 2), "second")
		third := cut(renamed("third"), 3)
		tell(append(third[:5:5], cut(renamed("fourth"), 4)...), "fourth") // the next one may come before the last has ended
		broken := policiesOf(renamed("fifth"), 5)
		broken.Policies.Json[0] = '['
		tell([]*quotav1.WatchResponse{broken}, "fourth")
		tell(cut(renamed("sixth"), 6), "sixth")
	})
}

// TestTheSlotTableIsTheClusters, whatever an even one would be.
func TestTheSlotTableIsTheClusters(t *testing.T) {
	play(t, 4, func(s *scene) {
		s.a.first.Cluster.Slots = slices.Repeat([]byte{0, 3}, 4096)
		s.b.first = s.a.first
	}, func(s *scene) {
		for p := range 4 {
			s.want(s.check(func(m *quotav1.CheckRequest) { m.Descriptors[0] = descriptor("user", userIn(p, 4)) }), "allow")
		}
		for _, m := range s.sends() {
			if m.GetCheck().GetPartition() != 3 {
				s.Errorf("asked partition %d", m.GetCheck().GetPartition())
			}
		}
	})
}

// TestAResolutionSaysAllThatHasToAgree.
func TestAResolutionSaysAllThatHasToAgree(t *testing.T) {
	play(t, 3, func(s *scene) {
		s.a.answer = rounds(nil, nil)
	}, func(s *scene) {
		s.want(s.check(func(m *quotav1.CheckRequest) {
			m.Descriptors = []*quotav1.Descriptor{descriptor("nothing", "n"), descriptor("user", userIn(1, 3), "host", "")}
		}), "allow")
		r := s.sends()[0].GetCheck().GetResolution()
		set, err := policy.Compile(testSet())
		if err != nil {
			s.Fatal(err)
		}
		if len(r.GetPolicies()) != 1 || r.GetSetEpoch() != 1 || r.GetSetVersion() != 1 {
			s.Fatalf("%v", r)
		}
		p := r.GetPolicies()[0]
		key := "\x07default\x05users\x04user\x02" + userIn(1, 3)
		if p.GetDescriptorIndex() != 1 || p.GetPolicy() != "default/users" || string(p.GetKey()) != key || p.GetPartition() != 1 ||
			len(p.GetRevision()) != 8 || p.GetRevision()[0] != byte(set.Revision(0)>>56) {
			s.Errorf("%v", p)
		}
	})
}

// TestWhatMatchesNothingGoesToThePartitionOfItsDomain.
func TestWhatMatchesNothingGoesToThePartitionOfItsDomain(t *testing.T) {
	play(t, 64, func(*scene) {}, func(s *scene) {
		parts := map[string]uint32{}
		for _, domain := range []string{"api", "api", "other", "a third"} {
			n := len(s.sends())
			s.want(s.check(func(m *quotav1.CheckRequest) {
				m.Domain, m.Descriptors[0] = domain, descriptor("nothing", "n")
			}), "allow")
			m := s.sends()[n].GetCheck()
			if m.GetResolution() == nil || len(m.GetResolution().GetPolicies()) != 0 {
				s.Errorf("resolution %v", m.GetResolution())
			}
			if p, known := parts[domain]; known && p != m.GetPartition() {
				s.Errorf("%s is asked in partitions %d and %d", domain, p, m.GetPartition())
			}
			parts[domain] = m.GetPartition()
		}
	})
}
