package faults_test

import (
	"time"

	"github.com/quorate/quorate/test/rig"
)

// ofLinks are what befalls what nodes say to each other.
func ofLinks() []fault {
	return []fault{
		{name: "cut", about: cutBytes, does: cutBothWays},
		{name: "cut one way", about: cutBytes, does: cutOneWay},
		{name: "slow links", about: "kilobytes delayed", does: slowLinks},
		{name: "doubled connections", about: "connections doubled", does: doubleConnections},
		{name: "reordered", about: "kilobytes overtaken", does: reorder},
	}
}

// cutFor is how long a cut lasts after others have taken over.
const cutFor = 4 * election

// cutBothWays cuts one that leads off from the others; twice.
func cutBothWays(c *cell) {
	for range 2 {
		victim, leads := c.someLeader()
		c.web.Isolate(victim)
		c.hit("cut off "+victim, leads...)
		c.recover(leads)
		c.wait(cutFor)
		c.web.Mend()
		c.awaitAllows(50)
	}
}

// cutOneWay first has one that leads heard by nobody, then one that hears nobody.
func cutOneWay(c *cell) {
	for _, heard := range []bool{false, true} {
		victim, leads := c.someLeader()
		for _, other := range rig.Others(victim) {
			if heard {
				c.web.Cut(other, victim)
			} else {
				c.web.Cut(victim, other)
			}
		}
		c.hit("cut one way: "+victim, leads...)
		c.recover(leads)
		c.wait(cutFor)
		c.web.Mend()
		c.awaitAllows(50)
	}
}

// slowLinks makes every byte late by up to a third of an election timeout.
func slowLinks(c *cell) {
	before := c.web.Tally()
	for range 3 {
		for _, from := range rig.Names() {
			for _, to := range rig.Others(from) {
				c.web.Lane(from, to).Slow(time.Duration(20+c.r.IntN(80))*time.Millisecond, 0)
			}
		}
		c.hit("slower", c.all()...)
		c.wait(1200 * time.Millisecond)
	}
	c.count("kilobytes delayed", int(c.web.Tally().Minus(before).Carried>>10))
	c.web.Mend()
}

// doubleConnections ends connections towards who dialled only: the others go on with the old one, beside the new.
func doubleConnections(c *cell) {
	before := c.web.Tally()
	for range 10 {
		for _, pair := range pairs() {
			c.web.Break(pair[0], pair[1], 3*time.Second)
		}
		c.hit("connections broken", c.all()...)
		c.wait(300 * time.Millisecond)
	}
	c.count("connections doubled", c.web.Tally().Minus(before).Links)
}

// reorder breaks connections while bytes are under way, so that those arrive behind what is sent anew.
func reorder(c *cell) {
	before := c.web.Tally()
	for _, pair := range pairs() {
		c.web.Lane(pair[0], pair[1]).Slow(90*time.Millisecond, 0)
		c.web.Lane(pair[1], pair[0]).Slow(90*time.Millisecond, 0)
	}
	for range 12 {
		pair := pairs()[c.r.IntN(3)]
		c.web.Break(pair[0], pair[1], time.Second)
		c.hit("connection broken", c.all()...)
		c.wait(350 * time.Millisecond)
	}
	c.web.Mend()
	c.count("kilobytes overtaken", int(c.web.Tally().Minus(before).Late+1023)>>10)
}

// pairs are the pairs of nodes.
func pairs() [][2]string { return [][2]string{{"n1", "n2"}, {"n1", "n3"}, {"n2", "n3"}} }
