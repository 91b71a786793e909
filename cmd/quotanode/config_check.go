package main

import (
	"fmt"
	"net"
	"strings"
)

// complete fills in what nobody gave, and reports what has to be given.
func (r *configReader) complete() {
	for i := range configFields {
		f := &configFields[i]
		if strings.HasPrefix(f.path, "nodes[].") {
			for n := range r.config.Nodes {
				r.require(f, strings.Replace(f.path, "[]", fmt.Sprintf("[%d]", n), 1))
			}
			continue
		}
		r.require(f, f.path)
		if f.fallback != "" && !r.given(f.path) {
			if err := f.set(&r.config, f.fallback); err != nil {
				panic(fmt.Sprintf("the default of %s: %v", f.path, err)) // ours
			}
		}
	}
}

func (r *configReader) require(f *configField, path string) {
	switch {
	case !f.required || r.given(path):
	case f.flag != "":
		r.add(path, "is required, here or by --%s", f.flag)
	default:
		r.add(path, "is required")
	}
}

// check looks at what values say together.
func (r *configReader) check() {
	if r.broken[""] {
		return
	}
	r.checkNodes()
	r.checkSelf()
	r.checkCertificates()
	r.checkListening()
	r.checkSizes()
}

const fewestNodes = 3

func (r *configReader) checkNodes() {
	c := &r.config
	n := len(c.Nodes)
	if n < fewestNodes && !r.broken["nodes"] {
		r.add("nodes", "names %d, and it takes %d: of fewer no majority survives the loss of one", n, fewestNodes)
	}
	if c.Replication > n && n >= fewestNodes && !r.broken["replication"] {
		r.add("replication", "%d replicas don't fit on %d nodes, at most one each", c.Replication, n)
	}
	names, addresses := map[string]string{}, map[string]string{}
	for i, node := range c.Nodes {
		at := fmt.Sprintf("nodes[%d].", i)
		r.unique(names, at+"name", node.Name)
		r.unique(addresses, at+"links", node.Links)
		r.unique(addresses, at+"grpc", node.GRPC)
	}
}

// unique reports a value that another path has already.
func (r *configReader) unique(seen map[string]string, path, value string) {
	if other, twice := seen[value]; twice && value != "" {
		r.add(path, "%s is %s too", value, other)
		return
	}
	seen[value] = path
}

// checkSelf finds this node among the others and takes from there what isn't given.
func (r *configReader) checkSelf() {
	c := &r.config
	if c.Name == "" || len(c.Nodes) == 0 {
		return // reported
	}
	self := c.node(c.Name)
	if self == nil {
		if !r.anyBroken("nodes", "name") {
			r.add("name", "%s is none of the nodes: name it there, with where it is reached", c.Name)
		}
		return
	}
	switch {
	case c.Zone == "":
		c.Zone = self.Zone
	case self.Zone == "":
		self.Zone = c.Zone
	case self.Zone != c.Zone && !r.broken["zone"]:
		r.add("zone", "%s is not the zone that nodes has for %s, %s; let them agree", c.Zone, c.Name, self.Zone)
	}
	if !r.given("listen.links") {
		c.Listen.Links = self.Links
	}
	if !r.given("listen.grpc") {
		c.Listen.GRPC = self.GRPC
	}
}

// anyBroken says whether the field was reported of any item of the list.
func (r *configReader) anyBroken(list, field string) bool {
	for i := range r.config.Nodes {
		if r.isBroken(fmt.Sprintf("%s[%d].%s", list, i, field)) {
			return true
		}
	}
	return r.isBroken(list)
}

// checkCertificates: all three files or none, and without them nothing leaves the machine.
func (r *configReader) checkCertificates() {
	paths := []string{"tls.ca", "tls.cert", "tls.key"}
	given := 0
	for _, path := range paths {
		if r.given(path) {
			given++
		}
	}
	switch {
	case given == 0 && r.isBroken("tls"):
	case given == 0:
		r.checkLoopback()
	case given < len(paths):
		for _, path := range paths {
			if !r.given(path) {
				r.add(path, "is missing: --ca, --cert and --key go together; give all three, here or there, or none")
			}
		}
	}
}

func (r *configReader) checkLoopback() {
	const why = "%s is reachable from other machines, which needs certificates: give tls, or use addresses of 127.0.0.1"
	local := func(path, address string) {
		if address != "" && !r.isBroken(path) && !isLoopback(address) {
			r.add(path, why, address)
		}
	}
	c := &r.config
	for i, n := range c.Nodes {
		local(fmt.Sprintf("nodes[%d].links", i), n.Links)
		local(fmt.Sprintf("nodes[%d].grpc", i), n.GRPC)
	}
	// Those that come from nodes were looked at there.
	if r.given("listen.links") {
		local("listen.links", c.Listen.Links)
	}
	if r.given("listen.grpc") {
		local("listen.grpc", c.Listen.GRPC)
	}
}

func (r *configReader) checkListening() {
	seen := map[string]string{}
	l := r.config.Listen
	for _, at := range []struct{ path, address string }{
		{"listen.links", l.Links}, {"listen.grpc", l.GRPC}, {"listen.health", l.Health},
	} {
		if _, port, err := net.SplitHostPort(at.address); err == nil && port != "0" && !r.isBroken(at.path) {
			r.unique(seen, at.path, at.address)
		}
	}
}

// leastShare is what a partition's part of a node's bound has to be to hold anything worth while.
const leastShare = 1 << 18

// checkSizes looks at a partition's share of the bound, as genesis will reckon it.
func (r *configReader) checkSizes() {
	c := &r.config
	if len(c.Nodes) < fewestNodes || c.Replication == 0 || c.Memory == 0 || r.isBroken("partitions") {
		return // reported
	}
	share := c.Memory * uint64(len(c.Nodes)) / uint64(c.partitions()*c.Replication)
	if share < leastShare {
		r.add("memory", "%s leave %s for each of %d partitions, and it takes %s; give more, or have fewer partitions",
			formatSize(c.Memory), formatSize(share), c.partitions(), formatSize(leastShare))
	}
}
