package server_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/partition"
)

// TestWhatNodesSayIsHeldToItsBounds: nothing of it comes through otherwise.
func TestWhatNodesSayIsHeldToItsBounds(t *testing.T) {
	c := &scene{}
	peer := quotav1.NewPeerClient(onCluster(t, c))
	announce := func(m *quotav1.AnnounceRequest) error {
		_, err := peer.Announce(t.Context(), m)
		return err
	}
	starts := func(n int) (list []*quotav1.GroupStart) {
		for i := range n {
			list = append(list, &quotav1.GroupStart{Id: idOfN2, Group: uint32(i)})
		}
		return list
	}
	const noID = "id: is not the name of a node, a hyphen and 16 hex digits"
	for want, m := range map[string]*quotav1.AnnounceRequest{
		noID: {}, noID + " ": {Id: "n2"}, noID + "  ": {Id: "n2-0123456789ABCDEF"}, noID + "   ": {Id: "-0123456789abcdef"},
		noID + "    ": {Id: strings.Repeat("n", 64) + "-0123456789abcdef"},
		"starts: has 4098 replicas, at most 4097 are allowed":                 {Id: idOfN2, Starts: starts(4098)},
		"starts[0].group: is 4097, not below 4097":                            {Id: idOfN2, Starts: []*quotav1.GroupStart{{Id: idOfN2, Group: 4097}}},
		"starts[2].group: is told of twice":                                   {Id: idOfN2, Starts: append(starts(2), starts(1)...)},
		"starts[1].id: is of another node than the one that announces itself": {Id: idOfN2, Starts: append(starts(1), &quotav1.GroupStart{Group: 1})},
	} {
		err := announce(m)
		if f := failureIn(t, err); status.Code(err) != codes.InvalidArgument || f.GetMessage() != strings.TrimSpace(want) {
			t.Errorf("want %s: %v", want, err)
		}
	}
	for _, from := range []string{"", strings.Repeat("n", 64)} {
		_, err := peer.Describe(t.Context(), &quotav1.DescribeRequest{From: from})
		if f := failureIn(t, err); f.GetMessage() != "from: names no node" {
			t.Errorf("from %q: %v", from, err)
		}
	}
	_, err := peer.Found(t.Context(), &quotav1.FoundRequest{})
	if f := failureIn(t, err); f.GetMessage() != "genesis: is empty" {
		t.Errorf("no document: %v", err)
	}
	if len(c.told) > 0 {
		t.Errorf("told %q", c.told)
	}
	if err := announce(&quotav1.AnnounceRequest{Id: idOfN2, Starts: starts(4097)}); err != nil {
		t.Errorf("one of each group: %v", err)
	}
}

// TestADiskThatIsNotTheOneIsFinal, and so is one that is an old copy; what the operating system says, and whatever
// else keeps a start from being noted, may be over the next time.
func TestADiskThatIsNotTheOneIsFinal(t *testing.T) {
	for _, c := range []struct {
		err  error
		want codes.Code // of Found
		note codes.Code // of Announce
	}{
		{errors.New("genesis documents differ"), codes.FailedPrecondition, codes.Unavailable},
		{fmt.Errorf("announce: %w", partition.ErrRewound), codes.FailedPrecondition, codes.FailedPrecondition},
		{partition.ErrNoMember, codes.FailedPrecondition, codes.Unavailable},
		{fmt.Errorf("announce: %w", partition.ErrLevel), codes.FailedPrecondition, codes.OutOfRange},
		{fmt.Errorf("write: %w", &fs.PathError{Op: "open", Path: "genesis.json", Err: syscall.ENOSPC}), codes.Unavailable, codes.Unavailable},
	} {
		peer := quotav1.NewPeerClient(onCluster(t, &scene{err: c.err}))
		if _, err := peer.Found(t.Context(), &quotav1.FoundRequest{Genesis: []byte("{}")}); status.Code(err) != c.want {
			t.Errorf("found: %v", err)
		}
		if _, err := peer.Announce(t.Context(), &quotav1.AnnounceRequest{Id: idOfN2}); status.Code(err) != c.note {
			t.Errorf("announced: %v", err)
		}
	}
}
