package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// confirmedBy is the answer of a node of a cluster of three partitions, each given as partition, term and number.
func confirmedBy(versions ...[3]uint64) *adminNode {
	m := &quotav1.GetPoliciesResponse{ClusterId: bytes.Repeat([]byte{7}, 16), ClusterPartitions: 3}
	for _, v := range versions {
		p := &quotav1.PartitionVersion{Partition: uint32(v[0]), Term: v[1]}
		if v[2] > 0 {
			p.Version = &quotav1.SetVersion{Epoch: 1, Number: v[2]}
		}
		m.Partitions = append(m.Partitions, p)
	}
	return &adminNode{parts: []*quotav1.GetPoliciesResponse{m}}
}

// shown is what is enforced, in a line: partition=number.
func shown(e *client.Enforced) string {
	var parts []string
	for _, p := range slices.Sorted(maps.Keys(e.Versions)) {
		parts = append(parts, fmt.Sprintf("%d=%d", p, e.Versions[p].GetNumber()))
	}
	return strings.Join(parts, " ")
}

// TestEnforcedPutsTogetherWhatNodesConfirm: of two the later term counts, whoever answers first; what one node says at
// two addresses is its earlier word.
func TestEnforcedPutsTogetherWhatNodesConfirm(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes []*adminNode
		want  string
	}{
		"each its own":        {[]*adminNode{confirmedBy([3]uint64{0, 2, 7}), confirmedBy([3]uint64{1, 3, 7}), confirmedBy([3]uint64{2, 4, 6})}, "0=7 1=7 2=6"},
		"no set yet":          {[]*adminNode{confirmedBy([3]uint64{0, 2, 7}, [3]uint64{1, 2, 0}, [3]uint64{2, 2, 0})}, "0=7 1=0 2=0"},
		"one isn't confirmed": {[]*adminNode{confirmedBy([3]uint64{0, 2, 7}), confirmedBy(), confirmedBy([3]uint64{2, 4, 6})}, "0=7 2=6"},
		"the later term":      {[]*adminNode{confirmedBy([3]uint64{0, 5, 6}), confirmedBy([3]uint64{0, 4, 7}), confirmedBy([3]uint64{1, 2, 6})}, "0=6 1=6"},
		"the later term last": {[]*adminNode{confirmedBy([3]uint64{0, 4, 7}), confirmedBy([3]uint64{1, 2, 6}), confirmedBy([3]uint64{0, 5, 6})}, "0=6 1=6"},
		"at two addresses":    {[]*adminNode{confirmedBy([3]uint64{0, 4, 7}), confirmedBy([3]uint64{0, 4, 6}), confirmedBy([3]uint64{0, 4, 7})}, "0=6"},
	} {
		addresses := []string{nobody(t)}
		for _, n := range tc.nodes {
			addresses = append(addresses, serveAdmin(t, n))
		}
		e, err := newAdmin(t, addresses...).Enforced(t.Context())
		if err != nil || e.Partitions != 3 || len(e.Cluster) != 16 || shown(e) != tc.want || e.Complete() != (len(e.Versions) == 3) {
			t.Errorf("%s: %+v, %v, want %s", name, e, err, tc.want)
			continue
		}
		for _, n := range tc.nodes {
			if n.asked.Load() != n.confirms.Load() || !e.Complete() && n.asked.Load() != 1 {
				t.Errorf("%s: a node was asked %d times, %d of them to confirm", name, n.asked.Load(), n.confirms.Load())
			}
		}
		if !e.Complete() && (len(e.Failed) != 1 || e.Failed[0].Address != addresses[0] || e.Failed[0].Code != codes.Unavailable) {
			t.Errorf("%s: failed are %v", name, e.Failed)
		}
	}
}

// TestTheLaterTermCountsWhoeverAnswersFirst, and of one term the earlier word.
func TestTheLaterTermCountsWhoeverAnswersFirst(t *testing.T) {
	said := func(term, number uint64) *quotav1.PartitionVersion {
		return &quotav1.PartitionVersion{Term: term, Version: &quotav1.SetVersion{Epoch: 1, Number: number}}
	}
	a, b, c := said(4, 7), said(5, 6), said(5, 5)
	for _, order := range [][]*quotav1.PartitionVersion{{a, b, c}, {a, c, b}, {b, a, c}, {b, c, a}, {c, a, b}, {c, b, a}} {
		if got := client.PutTogether(order...)[0].GetNumber(); got != 5 {
			t.Errorf("%v: %d", order, got)
		}
	}
}

// TestEnforcedWaitsForNobodyOnceAllIsConfirmed: a node that is frozen leads nothing that counts. Where something is
// missing it is waited for until the caller's deadline.
func TestEnforcedWaitsForNobodyOnceAllIsConfirmed(t *testing.T) {
	silent := serveAdmin(t, &adminNode{silent: true})
	e, err := newAdmin(t, silent, serveAdmin(t, confirmedBy([3]uint64{0, 2, 7}, [3]uint64{1, 2, 7}, [3]uint64{2, 2, 7}))).Enforced(t.Context())
	if err != nil || !e.Complete() || len(e.Failed) > 0 {
		t.Errorf("%+v, %v", e, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	e, err = newAdmin(t, silent, serveAdmin(t, confirmedBy([3]uint64{0, 2, 7}))).Enforced(ctx)
	if err != nil || shown(e) != "0=7" || len(e.Failed) != 1 || !e.Failed[0].Late() {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestHearsayConfirmsNothing: nodes of an earlier version don't know what they are asked for, and tell of all
// partitions what they have heard. Nor does an answer count that can't be right.
func TestHearsayConfirmsNothing(t *testing.T) {
	version := &quotav1.SetVersion{Epoch: 1, Number: 7}
	good := confirmedBy([3]uint64{1, 2, 7})
	for want, m := range map[string]*quotav1.GetPoliciesResponse{
		"it confirms nothing":               {Partitions: []*quotav1.PartitionVersion{{Partition: 0, Version: version}, {Partition: 2, Version: version}}},
		"it tells of no cluster":            {},
		"partition 0 is confirmed in no":    {ClusterId: make([]byte, 16), ClusterPartitions: 3, Partitions: []*quotav1.PartitionVersion{{Version: version}}},
		"partition 3 of 3":                  confirmedBy([3]uint64{3, 2, 7}).parts[0],
		"partition 2 of 3, or twice":        confirmedBy([3]uint64{2, 2, 7}, [3]uint64{2, 3, 7}).parts[0],
		"an id of 3 bytes and 3 partitions": {ClusterId: make([]byte, 3), ClusterPartitions: 3},
		"an id of 16 bytes and 0 partition": {ClusterId: make([]byte, 16)},
		"16 bytes and 4097 partitions":      {ClusterId: make([]byte, 16), ClusterPartitions: 4097},
	} {
		n := &adminNode{parts: []*quotav1.GetPoliciesResponse{m}}
		e, err := newAdmin(t, serveAdmin(t, n), serveAdmin(t, good)).Enforced(t.Context())
		if err != nil || shown(e) != "1=7" || len(e.Failed) != 1 || !strings.Contains(e.Failed[0].Error(), want) {
			t.Errorf("%s: %+v, %v", want, e, err)
		}
		if e, err := newAdmin(t, serveAdmin(t, n)).Enforced(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: alone: %+v, %v", want, e, err)
		}
	}
}

// TestEnforcedFailsWhereNobodyTells, and where two clusters do.
func TestEnforcedFailsWhereNobodyTells(t *testing.T) {
	refusing := &adminNode{failure: status.Error(codes.PermissionDenied, "no reader")}
	_, err := newAdmin(t, nobody(t), serveAdmin(t, refusing)).Enforced(t.Context())
	var e *client.NodeError
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "no reader") || !strings.Contains(err.Error(), "dial tcp") {
		t.Error(err)
	}
	one, other := confirmedBy([3]uint64{0, 2, 7}), confirmedBy([3]uint64{1, 2, 7})
	other.parts[0].ClusterId = bytes.Repeat([]byte{8}, 16)
	if e, err := newAdmin(t, serveAdmin(t, one), serveAdmin(t, other)).Enforced(t.Context()); err == nil || !strings.Contains(err.Error(), "two clusters") {
		t.Errorf("%+v, %v", e, err)
	}
	other.parts[0].ClusterId, other.parts[0].ClusterPartitions = one.parts[0].ClusterId, 4
	if e, err := newAdmin(t, serveAdmin(t, one), serveAdmin(t, other)).Enforced(t.Context()); err == nil {
		t.Errorf("%+v, though the numbers of partitions differ", e)
	}
}
