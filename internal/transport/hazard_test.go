package transport_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// A leader learns from a heartbeat that another one has been elected. Handled beside the main loop, the heartbeat
// changes the term under it, and what a client asks next is logged under the other leader's term: that one's followers
// take it for theirs, and the replicas diverge (hashicorp/raft #695). Through Consumer it can't.
func TestHazard695ADeposedLeaderLogsNothingOfItsClients(t *testing.T) {
	bothWays(t, func(t *testing.T, r roads, off bool) {
		l := newLab(t, r, switches{fast: off})
		old := l.leader(members...)
		l.apply(old, "before", nil)
		time.Sleep(time.Second) // of the bubble: all have it
		next, third := others(old)[0], others(old)[1]
		l.isolate(old)
		if !l.campaign(next, third) {
			t.Fatal("nobody was elected in its place")
		}
		l.apply(next, "of the new leader", nil)
		if l.rafts[old].State() != raft.Leader {
			t.Fatal("the old leader has noticed: nothing is tried")
		}
		synctest.Wait() // the old one's main loop waits for something to do
		if err := l.beat(next, old); err != nil {
			t.Fatal(err)
		}
		fate := raft.ErrNotLeader
		if off {
			fate = raft.ErrLeadershipLost // it did log it
		}
		l.apply(old, "of the deposed leader", fate)
		l.heal()
		time.Sleep(5 * time.Second)
		l.judge(off, "log: ", "state: ")
	})
}

// The same before a leader's first entry: whoever holds up NotifyCh holds up its main loop. The term that it logs its
// first entry under, and sends to its followers as a leader, must be the one that it was elected in.
func TestHazard695ALeaderBeginsInTheTermThatItWasElectedIn(t *testing.T) {
	bothWays(t, func(t *testing.T, r roads, off bool) {
		held := make(chan bool)
		l := newLab(t, r, switches{fast: off, notify: map[string]chan bool{"a": held}, alone: "a"}) // another one leads first
		l.leader("b", "c")
		l.heal()
		first := l.leader(members...)
		if first == "a" {
			t.Fatal("a leads already")
		}
		time.Sleep(time.Second) // of the bubble: a has all of the log
		if !l.campaign("a", first) {
			t.Fatal("a was not elected")
		}
		won := l.rafts["a"].CurrentTerm()
		l.isolate("a")
		next := l.leader("b", "c")
		if term := l.rafts[next].CurrentTerm(); term <= won {
			t.Fatalf("%s leads term %d, a was elected in %d", next, term, won)
		}
		var beats sync.WaitGroup
		beats.Go(func() { _ = l.beat(next, "a") }) // with the mitigation it waits its turn, and may wait too long
		synctest.Wait()
		if now := l.rafts["a"].CurrentTerm(); (now != won) != off {
			t.Fatalf("a was elected in term %d and is in %d", won, now)
		}
		go func() { // NotifyCh is heard again
			for range held {
			}
		}()
		synctest.Wait()
		if e := l.newest("a"); (e.Term != won) != off || e.Type != raft.LogNoop {
			t.Errorf("a was elected in term %d, and logged %v under %d", won, e.Type, e.Term)
		}
		l.heal()
		beats.Wait()
		time.Sleep(5 * time.Second)
		for _, r := range l.rafts {
			if err := r.Shutdown().Error(); err != nil {
				t.Error(err)
			}
		}
		close(held)
	})
}

// A vote is remembered by the candidate's address. Where another replica comes to have that address, as pods do, the
// same vote is given twice in a term, two lead it, and both commit in one place. Here an address is a server id.
func TestHazardVotesAreRememberedByAddress(t *testing.T) {
	for _, off := range []bool{false, true} {
		t.Run(mitigation(off), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { twoCandidates(t, off) })
		})
	}
}

func twoCandidates(t *testing.T, off bool) {
	l := newLab(t, localRoads(), switches{})
	voter := l.leader(members...)
	one, two := others(voter)[0], others(voter)[1]
	if off {
		l.restart(two, address(one)) // as a pod that starts where the other one was
	} else {
		l.restart(two, "")
	}
	l.apply(voter, "before", nil)
	time.Sleep(time.Second) // of the bubble: all have it
	l.isolate(two)
	l.ways[one].silent.Store(true)
	if !l.campaign(one, voter) {
		t.Fatal("the first candidate was not elected")
	}
	term := l.rafts[one].CurrentTerm()
	l.heal()
	l.cut(one, two)
	if got := l.campaign(two, voter) && l.rafts[two].CurrentTerm() == term; got != off {
		t.Fatalf("in term %d, which has a leader, another is elected: %v", term, got)
	}
	if !off {
		return
	}
	if l.rafts[one].State() != raft.Leader || l.rafts[one].CurrentTerm() != term {
		t.Fatal("the first leader has noticed: nothing is tried")
	}
	second := l.rafts[two].Apply([]byte("of the second"), time.Second)
	if err := second.Error(); err != nil {
		t.Fatal(err)
	}
	l.ways[one].silent.Store(false)
	first := l.rafts[one].Apply([]byte("of the first"), time.Second)
	if err := first.Error(); err != nil {
		t.Fatal(err)
	}
	if first.Index() != second.Index() {
		t.Errorf("committed as entries %d and %d: what the address does to votes has changed", first.Index(), second.Index())
	}
	l.judge(true, "log: ", "state: ")
}

// bothWays runs a test over each transport, with the mitigation and without.
func bothWays(t *testing.T, test func(t *testing.T, r roads, off bool)) {
	for _, off := range []bool{false, true} {
		t.Run(mitigation(off), func(t *testing.T) {
			eachRoads(t, func(t *testing.T, r roads) { test(t, r, off) })
		})
	}
}

func mitigation(off bool) string {
	if off {
		return "off"
	}
	return "on"
}

// campaign has a replica stand for election at once, as at a handover, and tells whether it wins.
func (l *lab) campaign(node, word string) bool {
	l.t.Helper()
	w := l.ways[word]
	header := raft.RPCHeader{ProtocolVersion: 3, ID: []byte(server(word)), Addr: []byte(address(word))}
	if err := w.TimeoutNow(server(node), address(node), &raft.TimeoutNowRequest{RPCHeader: header}, new(raft.TimeoutNowResponse)); err != nil {
		l.t.Fatal(err)
	}
	for range 50 {
		if l.rafts[node].State() == raft.Leader {
			return true
		}
		time.Sleep(time.Millisecond) // of the bubble
	}
	return false
}

// apply hands a command to a replica, and looks how it ends.
func (l *lab) apply(node, command string, want error) {
	l.t.Helper()
	if err := l.rafts[node].Apply([]byte(command), time.Second).Error(); !errors.Is(err, want) {
		l.t.Fatalf("%q at %s: %v, want %v", command, node, err, want)
	}
}

// judge looks whether replicas differ. With the mitigation off they must, or the library has changed, and the
// mitigation may have lost its reason.
func (l *lab) judge(off bool, kinds ...string) {
	l.t.Helper()
	found := l.differences()
	if !off && len(found) > 0 {
		l.t.Errorf("replicas differ: %s", strings.Join(found, "; "))
	}
	for _, kind := range kinds {
		seen := false
		for _, f := range found {
			seen = seen || strings.HasPrefix(f, kind)
		}
		if off && !seen {
			l.t.Errorf("without the mitigation nothing differs in %s: what it is there for doesn't happen any more", kind)
		}
	}
	for _, f := range found {
		l.t.Log(f)
	}
}
