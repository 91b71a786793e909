package faults_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/test/rig"
)

// ofClocks are what befalls clocks.
func ofClocks() []fault {
	steered := ground{steered: true}
	return []fault{
		{name: "wall clock", about: "readings of a wrong wall clock", does: setWallClocks, on: steered},
		{name: "fast clock", about: ledDoubted, does: runFast, on: ground{steered: true, partitions: 1}},
		{name: "slow clock", about: "allows under a slow clock", does: runSlow, on: steered, never: map[phase]string{
			installing: "a node that has just come back can't be compared with yet: the third one takes itself for fast meanwhile, as far as it can tell"}},
	}
}

// steer tells a steered node to do something.
func (c *cell) steer(name, what string, values ...string) {
	c.Helper()
	form := url.Values{}
	for i := 0; i < len(values); i += 2 {
		form.Set(values[i], values[i+1])
	}
	response, err := http.PostForm("http://"+c.Process[name].Line(c, "control ")+"/"+what, form)
	if err != nil {
		c.Fatal(err)
	}
	_ = response.Body.Close() // of no interest
	if response.StatusCode != http.StatusOK {
		c.Fatalf("%s: %s: %s", name, what, response.Status)
	}
}

// steered is what a steered node tells of its clocks.
type steered struct {
	WallReads int    `json:"wall_reads"`
	Wall      string `json:"wall"`
	PPM       int    `json:"ppm"`
}

func (c *cell) steered(name string) (s steered) {
	c.Helper()
	response, err := http.Get("http://" + c.Process[name].Line(c, "control ") + "/figures")
	if err != nil {
		c.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&s); err != nil {
		c.Fatal(err)
	}
	return s
}

// metric is the value of a node's metric; its labels belong to the name.
func (c *cell) metric(name, metric string) float64 {
	c.Helper()
	response, err := http.Get("http://" + c.Process[name].Line(c, "health ") + "/metrics")
	if err != nil {
		c.Fatal(err)
	}
	defer response.Body.Close()
	for s := bufio.NewScanner(response.Body); s.Scan(); {
		if text, ok := strings.CutPrefix(s.Text(), metric+" "); ok {
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				c.Fatal(err)
			}
			return value
		}
	}
	return 0
}

// setWallClocks sets the wall clock of one that leads an hour forward, then an hour back, and lets every connection
// begin anew, for which certificates are looked at.
func setWallClocks(c *cell) {
	for _, shift := range []time.Duration{time.Hour, -time.Hour} {
		victim, leads := c.someLeader()
		c.steer(victim, "wall", "shift", shift.String())
		c.hit(fmt.Sprintf("%s: wall clock %v", victim, shift), leads...)
		for _, other := range rig.Others(victim) {
			c.web.Break(victim, other, 0)
		}
		c.recover(leads)
		c.wait(1500 * time.Millisecond)
		s := c.steered(victim)
		at, err := time.Parse(time.RFC3339, s.Wall)
		if off := time.Until(at) - wallOffset - shift; err != nil || off.Abs() > time.Minute {
			c.Errorf("%s takes the time for %s, %v off what it was set to: %v", victim, s.Wall, off, err)
		}
		c.count("readings of a wrong wall clock", s.WallReads)
		c.steer(victim, "wall", "shift", "0s")
		c.awaitAllows(50)
	}
}

const (
	allowedByLimit = `quorate_decisions_total{outcome="allow",reason="limit"}`
	ledTerms       = "quorate_leader_changes_total"
	ledDoubted     = "terms led with a fast clock"
)

// runFast makes the clocks of a follower run fast by one per cent. Once it knows, it is made the leader: it admits
// nothing, and hands over.
func runFast(c *cell) {
	// Until it is found out, a clock beyond what is promised of clocks would break the promise where it leads. So it
	// is one that doesn't, nor is the first in line.
	victim := c.neverFirst()
	c.steer(victim, "rate", "ppm", "10000")
	began := time.Now()
	rig.Eventually(c, victim+" to doubt its clock", func() bool { return c.doubts(victim) })
	c.Logf("%s doubted its clock after %v", victim, time.Since(began).Round(10*time.Millisecond))
	allows, led := c.metric(victim, allowedByLimit), c.metric(victim, ledTerms)
	rig.Eventually(c, victim+" to lead", func() bool {
		c.promote(victim)
		return c.metric(victim, ledTerms) > led
	})
	c.recover(c.all())
	c.count(ledDoubted, int(c.metric(victim, ledTerms)-led))
	if more := c.metric(victim, allowedByLimit) - allows; more != 0 || !c.doubts(victim) {
		c.Errorf("%s allowed %v checks by a clock that it doubted; it still does: %v", victim, more, c.doubts(victim))
	}
	c.steer(victim, "rate", "ppm", "0")
}

// promote has the leader hand over while the third node can't take over: it stands still. Then it lets it go on.
func (c *cell) promote(name string) {
	c.Helper()
	leader := c.Leader(c, 0)
	if leader == name {
		c.wait(50 * time.Millisecond)
		return
	}
	third := rig.Others(leader, name)[0]
	c.Process[third].Freeze(c)
	c.wait(100 * time.Millisecond) // in which it falls behind
	c.hit("handover by "+leader, 0)
	c.steer(leader, "handover")
	c.wait(200 * time.Millisecond)
	c.Process[third].Thaw(c)
	c.wait(300 * time.Millisecond)
}

// neverFirst is a node that doesn't lead the only partition, and isn't the one that leads it where it can.
func (c *cell) neverFirst() string {
	c.Helper()
	leader := c.Leader(c, 0)
	replicas := c.Status(c, leader).GetPartitions()[0].GetReplicas()
	rest := rig.Others(leader, replicas[0].GetNode())
	return rest[c.r.IntN(len(rest))]
}

// doubts reports whether a node doubts its clock.
func (c *cell) doubts(name string) bool {
	for _, r := range c.replicas(c) {
		if r.GetNode() == name && r.GetClockDoubted() {
			return true
		}
	}
	return false
}

// runSlow makes the clocks of one that leads run slow by one per cent: nobody minds who has compared its own with the third
// one's, too. Who knows of the slow one alone, as after the third one was started anew, has to doubt its own.
func runSlow(c *cell) {
	c.wait(3 * compareOver / 2) // until all have
	victim, leads := c.someLeader()
	c.steer(victim, "rate", "ppm", "-10000")
	c.hit(victim+": slow clock", leads...)
	before := c.metric(victim, allowedByLimit)
	for end := time.Now().Add(3 * compareOver / 2); time.Now().Before(end); c.wait(200 * time.Millisecond) {
		for _, name := range rig.Names() {
			if c.doubts(name) {
				c.Errorf("%s doubts its clock because that of %s is slow", name, victim)
				return
			}
		}
	}
	if s := c.steered(victim); s.PPM != -10000 {
		c.Errorf("the clock of %s runs at %d", victim, s.PPM)
	}
	c.count("allows under a slow clock", int(c.metric(victim, allowedByLimit)-before))
	c.steer(victim, "rate", "ppm", "0")
}
