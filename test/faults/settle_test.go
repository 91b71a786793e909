package faults_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/test/checker"
	"github.com/quorate/quorate/test/rig"
)

// settle finds out, once nobody asks any more, about all of which the outcome is still unknown, where that can
// still be found out.
func (c *crowd) settle() {
	open := slices.Collect(maps.Values(c.open))
	several(len(open), func(i int) {
		k := &caller{crowd: c, name: "settler", r: rand.New(rand.NewPCG(uint64(i), 2))}
		for q := open[i]; c.isOpen(q) && now()-q.first < int64(repeatable); {
			if k.ask(q, k.some()) == nil {
				pause(context.Background(), 50*time.Millisecond)
			}
		}
	})
}

// inspect has the cluster say what is used of every hot key, and of some cold ones.
func (c *crowd) inspect() error {
	const some = 40
	questions := []*question{}
	for i := range hotKeys {
		questions = append(questions, &question{kind: "hot", who: fmt.Sprintf("%s-%d", c.prefix, i)})
	}
	for _, who := range slices.Sorted(maps.Keys(c.cold)) {
		if len(questions) < hotKeys+some {
			questions = append(questions, &question{kind: "cold", who: who})
		}
	}
	var failed atomic.Pointer[error]
	several(len(questions), func(i int) {
		if err := c.used(questions[i]); err != nil {
			failed.Store(&err)
		}
	})
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (c *crowd) used(q *question) (err error) {
	for end := time.Now().Add(rig.Patience); time.Now().Before(end); pause(context.Background(), 20*time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), askWithin)
		sent := now()
		var u *quotav1.InspectResponse
		u, err = c.clients[0].Inspect(ctx, &quotav1.InspectRequest{Domain: domain, Descriptor_: q.descriptor()})
		cancel()
		if err != nil {
			continue
		}
		line := &checker.Usage{
			Quota: q.quota(), Key: q.key(), Sent: sent, Answered: now(), Partition: int(u.GetPartition()), Epoch: u.GetEpoch(), Time: u.GetDecisionTimeNs(),
		}
		for _, l := range u.GetLimits() {
			line.Limits = append(line.Limits, checker.Used{Name: l.GetLimitName(), Used: l.GetUsed()})
		}
		return c.history.Write(line)
	}
	return fmt.Errorf("nobody says what %s has used: %w", q.key(), err)
}

// recoveries are the times from each moment until a partition gave an allow that was asked for after it. Where none
// came there is none.
func (c *crowd) recoveries(hits []hit) (list []time.Duration) {
	for _, h := range hits {
		for _, p := range h.partitions {
			first := int64(0)
			for _, a := range c.allows {
				if int(a.partition) == p && a.sent >= h.at && (first == 0 || a.answered < first) {
					first = a.answered
				}
			}
			if first != 0 {
				list = append(list, time.Duration(first-h.at))
			}
		}
	}
	slices.Sort(list)
	return list
}

// several calls do for each number below count, for some at once.
func several(count int, do func(i int)) {
	var next atomic.Int64
	var doing sync.WaitGroup
	for range min(count, 16) {
		doing.Go(func() {
			for i := next.Add(1) - 1; int(i) < count; i = next.Add(1) - 1 {
				do(int(i))
			}
		})
	}
	doing.Wait()
}
