package partition_test

import (
	"fmt"
	"testing"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/partition"
)

// halves makes the group partition 0 of two.
func halves(cl *cluster) { cl.settings.Partitions = 2 }

// find returns a descriptor whose key lives in this partition and one whose key doesn't.
func (r *replica) find(t *testing.T) (mine, theirs keyspace.Descriptor) {
	t.Helper()
	for i := 0; mine == nil || theirs == nil; i++ {
		q := r.cluster.request("many", fmt.Sprint("u", i))
		q.To = partition.AnyPartition
		switch o := r.ask(q); o.Result {
		case partition.Allowed:
			mine = q.Descriptors[0]
		case partition.StalePolicy:
			theirs = q.Descriptors[0]
		default:
			t.Fatalf("got %s", name(o.Result))
		}
	}
	return mine, theirs
}

// Half of a check must never be charged for an asker that doesn't know that it is a half.
func TestACheckOverSeveralPartitionsIsRefusedWholeUnlessAPartitionIsNamed(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		mine, theirs := r.find(t)
		q := cl.request("many", "")
		q.Descriptors, q.To = []keyspace.Descriptor{mine, theirs}, partition.AnyPartition
		if o := r.ask(q); o.Result != partition.NotSupported || o.Detail == "" {
			t.Errorf("got %s %q", name(o.Result), o.Detail)
		}
		if in := r.group.Load().Inspect("many", mine); in.Uses[0].Used != 1 {
			t.Errorf("%d used, want 1 as before", in.Uses[0].Used)
		}
		q = cl.request("many", "")
		q.Descriptors = []keyspace.Descriptor{theirs, mine}
		if o := r.ask(q); o.Result != partition.NotSupported {
			t.Errorf("without a resolution: got %s", name(o.Result))
		}
		q.Asked = &partition.Resolution{}
		q.Asked = r.ask(q).Resolution
		if o := r.ask(q); o.Result != partition.Allowed {
			t.Errorf("this partition's half: got %s", name(o.Result))
		}
		if in := r.group.Load().Inspect("many", mine); in.Uses[0].Used != 2 {
			t.Errorf("%d used, want 2", in.Uses[0].Used)
		}
		if o := r.ask(q); o.Result != partition.Allowed || !o.Answer.Replayed {
			t.Errorf("again under its id: got %s", name(o.Result))
		}
	}, halves)
}

func TestAWrongPartitionDecidesNothingAndSendsTheAskerOn(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		_, theirs := r.find(t)
		q := cl.request("many", "")
		q.Descriptors = []keyspace.Descriptor{theirs}
		o := r.ask(q)
		if o.Result != partition.StalePolicy || o.Resolution == nil || o.Resolution.Policies[0].Partition != 1 {
			t.Errorf("a key of partition 1: got %s with %+v", name(o.Result), o.Resolution)
		}
		q.To = 1
		if o := r.ask(q); o.Result != partition.NotLeader && o.Result != partition.NoQuorum {
			t.Errorf("asked for partition 1: got %s", name(o.Result))
		}
		if in := r.group.Load().Inspect("many", theirs); in.Result != partition.StalePolicy {
			t.Errorf("inspecting it: got %s", name(in.Result))
		}
	}, halves)
}

// What no policy matches is answered by one partition alone: another one might enforce an older set.
func TestAMatchlessCheckIsItsDomainsPartitions(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		owned := keyspace.EvenTable(2)[cl.settings.Seed.Slot("open", nil, nil)] == 0
		q := cl.request("open", "")
		q.Descriptors = []keyspace.Descriptor{descriptor("tenant", "t1")}
		want := partition.NoMatchAllowed
		if !owned {
			want = partition.StalePolicy
		}
		if o := r.ask(q); o.Result != want {
			t.Errorf("got %s, want %s", name(o.Result), name(want))
		}
	}, halves)
}

func TestALookTakesNothing(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "u0", partition.Allowed) // the lease begins with its commit
		index := r.group.Load().LastIndex()
		q := cl.request("three", "u1")
		q.Peek = true
		for range 5 {
			if o := r.ask(q); o.Result != partition.WouldAllow {
				t.Fatalf("a look: got %s", name(o.Result))
			}
		}
		if got := r.group.Load().LastIndex(); got != index {
			t.Errorf("%d entries for looks", got-index)
		}
		if n := r.used("three", "u1", 0); n != 0 {
			t.Errorf("%d used by looks", n)
		}
		taken := q
		taken.Peek = false
		if o := r.ask(taken); o.Result != partition.Allowed {
			t.Fatalf("got %s", name(o.Result))
		}
		r.want("three", "u1", partition.Allowed)
		r.want("three", "u1", partition.Allowed)
		if o := r.ask(q); o.Result != partition.WouldAllow {
			t.Errorf("a look under an id with an allow: got %s", name(o.Result))
		}
		q.ID = fsm.ID{0xff}
		if o := r.ask(q); o.Result != partition.Denied || o.Wait() == 0 {
			t.Errorf("a look at what is used up: got %s", name(o.Result))
		}
	})
}

// An asker whose set is newer is not sent back to an older one.
func TestAnAskerWithANewerSetIsToldThatThisPartitionIsBehind(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		q := cl.request("new", "u1")
		q.Asked = &partition.Resolution{Version: fsm.Version{Epoch: 1, Number: 2}, Policies: make([]partition.Resolved, 1)}
		if o := r.ask(q); o.Result != partition.Pending {
			t.Errorf("of a domain that is not known here yet: got %s", name(o.Result))
		}
		q = cl.request("three", "u1")
		q.Asked = &partition.Resolution{Version: fsm.Version{Epoch: 1, Number: 2}}
		if o := r.ask(q); o.Result != partition.Pending {
			t.Errorf("got %s", name(o.Result))
		}
		q.Asked.Version = fsm.Version{Epoch: 1, Number: 1}
		if o := r.ask(q); o.Result != partition.StalePolicy || o.Resolution.Version != q.Asked.Version {
			t.Errorf("of the same version: got %s", name(o.Result))
		}
	})
}
