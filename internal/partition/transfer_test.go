package partition_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/partition"
)

// A handover under load costs nobody an answer that was given, and the new leader is the one that was meant.
func TestLeadershipIsHandedOverToWhomItIsMeantFor(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		crowd := gather(cl, 8, func(int) string { return "u1" })
		pass(time.Second)
		for range 3 {
			from := cl.leader()
			to := cl.others(from)[0]
			if err := from.group.Load().Transfer(context.Background(), to.id); err != nil {
				t.Fatal(err)
			}
			if err := from.group.Load().Transfer(context.Background(), to.id); !errors.Is(err, raft.ErrNotLeader) {
				t.Errorf("of one that doesn't lead: %v", err)
			}
			pass(2 * time.Second)
			if now := cl.leader(); now != to {
				t.Errorf("%s leads, not %s", now.id, to.id)
			}
		}
		crowd.disperse()
		cl.leader().want("three", "u2", partition.Allowed)
	})
}

// Followers vote for whom the leader names although they hear the leader: what its lease relies on doesn't
// hold from then on, and it answers nothing from memory. When the handover has failed for good, it does again.
func TestALeaderThatHandsOverAnswersNothingFromMemory(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		for range 3 {
			r.want("three", "u1", partition.Allowed)
		}
		r.want("three", "u1", partition.Denied)
		to := cl.others(r)[0]
		cl.network.Isolate(raft.ServerAddress(to.id))
		pass(100 * time.Millisecond)
		err := r.group.Load().Transfer(context.Background(), to.id)
		if err == nil {
			t.Fatal("handed over to one that is cut off")
		}
		if o := r.ask(cl.request("three", "u1")); o.Result != partition.NoQuorum {
			t.Errorf("right after a handover that failed: got %s", name(o.Result))
		}
		r.want("three", "u2", partition.Allowed) // what the log decides goes on
		pass(8 * time.Second)
		r.want("three", "u1", partition.Denied)
	})
}

func TestOneHandoverAtATime(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		to := cl.others(r)[0]
		to.disk.slow(3 * time.Second) // which keeps its main loop from hearing
		r.submit(cl.request("three", "u1"))
		pass(time.Millisecond)
		short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		if err := r.group.Load().Transfer(short, to.id); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if err := r.group.Load().Transfer(context.Background(), to.id); !errors.Is(err, partition.ErrTransferring) {
			t.Errorf("a second one: %v", err)
		}
		to.disk.slow(0)
		pass(3 * time.Second)
	})
}

// A leader that goes on refusing entries long after any handover is of no use, and leads as long as it lives.
func TestALeaderThatRefusesForEverEnds(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		g := r.group.Load()
		refuse := func(after time.Duration, want int) {
			t.Helper()
			pass(after)
			g.Refuse(raft.ErrLeadershipTransferInProgress)
			if got := r.ends(); len(got) != want || want > 0 && !errors.Is(got[0], partition.ErrWedged) {
				t.Errorf("heard %v", got)
			}
		}
		refuse(0, 0)
		refuse(2700*time.Millisecond, 0)
		r.want("three", "u1", partition.Allowed) // it takes entries: all is well
		refuse(2700*time.Millisecond, 0)
		g.Refuse(raft.ErrNotLeader)
		refuse(2700*time.Millisecond, 0)
		refuse(600*time.Millisecond, 1)
	}, tuned(func(c *partition.Config) { c.Election, c.TickEvery = 300*time.Millisecond, time.Hour }))
}

// Whatever a leader logs shows that it can, its time alone too: two refusals far apart are two handovers.
func TestRefusalsFarApartEndNobody(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		for range 5 {
			r.group.Load().Refuse(raft.ErrLeadershipTransferInProgress)
			pass(time.Minute)
		}
		if got := r.ends(); len(got) > 0 {
			t.Errorf("ended with %v", got)
		}
	})
}

// slowLog takes its time over what is said of clocks, as a full pipe does.
type slowLog struct{ slog.Handler }

func (h slowLog) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "runs faster") {
		pass(100 * time.Millisecond)
	}
	return nil
}

func (h slowLog) WithAttrs([]slog.Attr) slog.Handler { return h }

// What a clock counted while it was doubted goes into no entry, also not in the moment in which the doubt ends.
func TestWhatADoubtedClockCountedIsNeverLogged(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed)
		g := r.group.Load()
		before := g.Standing().Now
		g.DoubtClock(true)
		pass(time.Minute)
		g.DoubtClock(false)
		pass(100 * time.Millisecond)
		if now := g.Standing().Now; now-before > int64(time.Second) {
			t.Errorf("decision time went on by %v", time.Duration(now-before))
		}
		r.want("three", "u1", partition.Denied)
	}, tuned(func(c *partition.Config) { c.Log = slog.New(slowLog{slog.DiscardHandler}) }))
}

// While its clock is doubted a leader logs nothing, not even its time, and ends what waits.
func TestADoubtedClockMovesNoTime(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "u1", partition.Allowed)
		g := r.group.Load()
		g.DoubtClock(true)
		before := g.Standing().Now
		if o := r.ask(cl.request("three", "u1")); o.Result != partition.Clock {
			t.Errorf("got %s", name(o.Result))
		}
		pass(time.Minute)
		if now := g.Standing().Now; now != before {
			t.Errorf("decision time went on by %v", time.Duration(now-before))
		}
		g.DoubtClock(false)
		r.want("three", "u1", partition.Allowed)
	})
}
