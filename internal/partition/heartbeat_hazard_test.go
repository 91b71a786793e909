package partition_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/partition"
)

// beside hands heartbeats over beside the main loop, as the library's own transports do (hashicorp/raft #695).
type beside struct {
	partition.Transport
	handler func(raft.RPC)
	rest    chan raft.RPC
	stop    chan struct{}
	once    sync.Once
	pump    sync.WaitGroup
}

func (b *beside) SetHeartbeatHandler(f func(raft.RPC)) {
	b.handler = f
	b.pump.Go(func() {
		for {
			select {
			case rpc := <-b.Transport.Consumer():
				if a, ok := rpc.Command.(*raft.AppendEntriesRequest); ok && a.PrevLogEntry == 0 && len(a.Entries) == 0 && a.LeaderCommitIndex == 0 {
					b.handler(rpc)
					continue
				}
				b.pump.Go(func() {
					select {
					case b.rest <- rpc:
					case <-b.stop:
					}
				})
			case <-b.stop:
				return
			}
		}
	})
}

func (b *beside) Consumer() <-chan raft.RPC { return b.rest }

func (b *beside) Close() error {
	b.once.Do(func() { close(b.stop) })
	err := b.Transport.Close()
	b.pump.Wait()
	return err
}

// A deposed leader whose clients' batch got into the log under its successor's term: the mitigation keeps the logs alike.
// Without it they differ, and the second line holds: apply refuses what was stamped under the term before, so no window
// holds one too many, and whoever asked is told that nobody knows.
func TestHazard695WhatADeposedLeaderLogsIsNotApplied(t *testing.T) {
	bothWays(t, func(t *testing.T, off bool) {
		deposed := map[string]*beside{}
		inBubble(t, func(cl *cluster) {
			old := cl.leader()
			next, third := cl.others(old)[0], cl.others(old)[1]
			old.want("three", "u1", partition.Allowed)
			pass(time.Second) // all have it
			term := old.group.Load().Status().Term
			cl.isolate(old)
			if err := takeOver(third, next); err != nil {
				t.Fatal(err)
			}
			for range 50 {
				if next.group.Load().Leading() {
					break
				}
				pass(time.Millisecond)
			}
			next.want("three", "u1", partition.Allowed)
			if s := old.group.Load().Status(); s.State != "Leader" || s.Term != term {
				t.Fatal("the old leader has noticed: nothing is tried")
			}
			pass(333 * time.Microsecond) // at no moment at which anything else is due
			synctest.Wait()
			if off {
				deposed[old.id].handler(raft.RPC{Command: heartbeat(next), RespChan: make(chan raft.RPCResponse, 1)})
			} else {
				cl.network.Heal()
				if err := next.link.AppendEntries(raft.ServerID(old.id), raft.ServerAddress(old.id), heartbeat(next), new(raft.AppendEntriesResponse)); err != nil {
					t.Fatal(err)
				}
			}
			s := old.submit(cl.request("three", "u1"))[0]
			synctest.Wait()
			cl.network.Heal()
			want := partition.NotLeader
			if off {
				want = partition.Unknown
			}
			if o := s.wait(); o.Result != want && (off || o.Result != partition.NoQuorum) {
				t.Errorf("the deposed leader answers %s", name(o.Result))
			}
			pass(3 * time.Second)
			cl.same()
			if differ := logsDiffer(old, next); differ != off {
				t.Errorf("their logs differ: %v", differ)
			}
			cl.leader().want("three", "u1", partition.Allowed, partition.Denied)
		}, tuned(func(c *partition.Config) {
			if off {
				deposed[c.ID] = &beside{Transport: c.Transport, rest: make(chan raft.RPC), stop: make(chan struct{})}
				c.Transport = deposed[c.ID]
			}
		}))
	})
}

func header(r *replica) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: 3, ID: []byte(r.id), Addr: []byte(r.id)}
}

// takeOver has one replica tell another to stand for election at once, as at a handover.
func takeOver(from, to *replica) error {
	q := &raft.TimeoutNowRequest{RPCHeader: header(from)}
	return from.link.TimeoutNow(raft.ServerID(to.id), raft.ServerAddress(to.id), q, new(raft.TimeoutNowResponse))
}

func heartbeat(leader *replica) *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{RPCHeader: header(leader), Term: leader.group.Load().Status().Term}
}

// logsDiffer tells whether two logs have another entry in the same place and of the same term.
func logsDiffer(one, two *replica) bool {
	for i := uint64(1); ; i++ {
		var a, b raft.Log
		if one.disk.GetLog(i, &a) != nil || two.disk.GetLog(i, &b) != nil {
			return false
		}
		if a.Term == b.Term && (a.Type != b.Type || string(a.Data) != string(b.Data)) {
			return true
		}
	}
}
