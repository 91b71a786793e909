package faults_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/test/rig"
)

// ofSpaces are what befalls the network itself, where each node has one of its own.
func ofSpaces() []fault {
	on := ground{spaces: true}
	never := map[phase]string{installing: "nothing there makes a snapshot slow enough to be hit"}
	return []fault{
		{name: "interface down", about: "interfaces down", does: interfacesDown, on: on, never: never, lacks: lacksSpaces},
		{name: "blackhole route", about: "packets without a route", does: blackholes, on: on, never: never, lacks: lacksSpaces},
	}
}

// lacksProgram says that a program is missing, and which Debian package has it; or that only root may.
func lacksProgram(program, debian string, root bool) string {
	if root && os.Geteuid() != 0 {
		return "needs root"
	}
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Sprintf("needs %s, of the Debian package %s", program, debian)
	}
	return ""
}

func lacksSpaces() string { return lacksProgram("ip", "iproute2", true) }

// spaces are network namespaces, one a node, joined by a bridge that this process is on as well.
type spaces struct {
	tag string // of all names, so that two runs don't meet
	net string // the first three bytes of all addresses
}

// opened counts them: a namespace that was deleted lingers for as long as a socket in it does, and its names with it.
var opened atomic.Int32

// openSpaces makes them. There is one set of them in a process at a time; they end with the test at the latest.
func openSpaces(t *testing.T) *spaces {
	t.Helper()
	s := &spaces{tag: fmt.Sprintf("q%dx%d", os.Getpid()%100000, opened.Add(1)), net: fmt.Sprintf("10.213.%d", os.Getpid()%250)}
	t.Cleanup(s.close)
	ip(t, "link", "add", s.bridge(), "type", "bridge")
	ip(t, "addr", "add", s.net+".254/24", "dev", s.bridge())
	ip(t, "link", "set", s.bridge(), "up")
	for _, name := range rig.Names() {
		space := s.space(name)
		ip(t, "netns", "add", space)
		ip(t, "link", "add", s.cable(name), "type", "veth", "peer", "name", "eth0", "netns", space)
		ip(t, "link", "set", s.cable(name), "master", s.bridge(), "up")
		ip(t, "-n", space, "addr", "add", s.host(name)+"/24", "dev", "eth0")
		ip(t, "-n", space, "link", "set", "eth0", "up")
		ip(t, "-n", space, "link", "set", "lo", "up")
	}
	return s
}

// close removes them, if they are there.
func (s *spaces) close() {
	for _, name := range rig.Names() {
		_ = exec.Command("ip", "link", "del", s.cable(name)).Run() // both ends, now: the namespace may linger
		_ = exec.Command("ip", "netns", "del", s.space(name)).Run()
	}
	_ = exec.Command("ip", "link", "del", s.bridge()).Run() // it may have gone before
}

func ip(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (s *spaces) bridge() string { return s.tag + "b" }

// space is the namespace of a node, cable the end of its cable that is on the bridge.
func (s *spaces) space(name string) string { return s.tag + "s" + name }
func (s *spaces) cable(name string) string { return s.tag + "c" + name }
func (s *spaces) host(name string) string  { return s.net + "." + strings.TrimPrefix(name, "n") }

// program runs a node within its namespace.
func (s *spaces) program(name string) []string {
	return []string{"ip", "netns", "exec", s.space(name), filepath.Join(string(programs), "quotanode"), "run"}
}

// interfacesDown pulls the cable of one that leads; twice.
func interfacesDown(c *cell) {
	for range 2 {
		victim, leads := c.someLeader()
		cable := c.spaces.cable(victim)
		before := c.number("/sys/class/net/" + cable + "/carrier_down_count")
		ip(c, "link", "set", cable, "down")
		c.hit("cable of "+victim+" pulled", leads...)
		c.recover(leads)
		c.wait(cutFor)
		ip(c, "link", "set", cable, "up")
		c.count("interfaces down", c.number("/sys/class/net/"+cable+"/carrier_down_count")-before)
		c.awaitAllows(50)
	}
}

func (c *cell) number(path string) int {
	c.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		c.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		c.Fatal(err)
	}
	return n
}

// blackholes lets one that leads send nothing to the other nodes. What they send it hears, until they wait for an
// answer; clients reach it all the while.
func blackholes(c *cell) {
	for range 2 {
		victim, leads := c.someLeader()
		before := c.withoutRoute(victim)
		for _, other := range rig.Others(victim) {
			ip(c, "-n", c.spaces.space(victim), "route", "add", "blackhole", c.spaces.host(other)+"/32")
		}
		c.hit("no route from "+victim, leads...)
		c.recover(leads)
		c.wait(cutFor)
		for _, other := range rig.Others(victim) {
			ip(c, "-n", c.spaces.space(victim), "route", "del", "blackhole", c.spaces.host(other)+"/32")
		}
		c.count("packets without a route", c.withoutRoute(victim)-before)
		c.awaitAllows(50)
	}
}

// withoutRoute is how many packets a node's kernel had no route for.
func (c *cell) withoutRoute(name string) int {
	c.Helper()
	out, err := exec.Command("ip", "netns", "exec", c.spaces.space(name), "cat", "/proc/net/snmp").Output()
	if err != nil {
		c.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		switch {
		case fields[0] != "Ip:":
		case names == nil:
			names = fields
		default:
			for i, n := range names {
				if n == "OutNoRoutes" {
					count, _ := strconv.Atoi(fields[i]) // the kernel's digits
					return count
				}
			}
		}
	}
	c.Fatal("the kernel doesn't count packets without a route")
	return 0
}
