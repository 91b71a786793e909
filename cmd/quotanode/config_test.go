package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/access"
)

var update = flag.Bool("update", false, "rewrite the reference in docs/running.md")

const threeLocalNodes = `nodes:
- {name: n1, links: "127.0.0.1:7001", grpc: "127.0.0.1:8081"}
- {name: n2, links: "127.0.0.1:7002", grpc: "127.0.0.1:8083"}
- {name: n3, links: "127.0.0.1:7003", grpc: "127.0.0.1:8084"}
`

const leastConfig = "name: n1\ndataDir: data\n" + threeLocalNodes

// configOf reads a file of that text in a folder of its own, "FOLDER" in what comes back.
func configOf(t *testing.T, text string, flags ...string) (*runConfig, string) {
	t.Helper()
	folder := t.TempDir()
	file := filepath.Join(folder, "n.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	given := map[string]string{}
	for i := 0; i < len(flags); i += 2 {
		given[flags[i]] = flags[i+1]
	}
	c, err := loadRunConfig(file, given)
	if err == nil {
		return c, ""
	}
	if !errors.As(err, new(*configError)) {
		t.Fatal(err)
	}
	return c, strings.ReplaceAll(err.Error(), file, "f")
}

// TestTheLeastConfigurationIsCompleted with the documented defaults.
func TestTheLeastConfigurationIsCompleted(t *testing.T) {
	c, faults := configOf(t, leastConfig)
	if faults != "" {
		t.Fatal(faults)
	}
	if filepath.Base(c.DataDir) != "data" || !filepath.IsAbs(c.DataDir) {
		t.Errorf("the data are in %s", c.DataDir)
	}
	want := &runConfig{
		Name: "n1", DataDir: c.DataDir, Replication: 3, Nodes: c.Nodes,
		Listen: listenConfig{Links: "127.0.0.1:7001", GRPC: "127.0.0.1:8081", Health: "127.0.0.1:8082"},
		Memory: 1 << 30, LogBytes: 64 << 20, Election: time.Second, LogLevel: slog.LevelWarn,
	}
	if !reflect.DeepEqual(c, want) || len(c.Nodes) != 3 || c.partitions() != 3 {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

const fullConfig = `name: n2
zone: b
dataDir: /var/lib/quorate
partitions: 12
replication: 5
nodes:
- {name: n1, links: "n1.example:7001", grpc: "n1.example:8081", zone: a}
- {name: n2, links: "n2.example:7001", grpc: "n2.example:8081"}
- {name: n3, links: "10.0.0.3:7001", grpc: "10.0.0.3:8081", zone: c}
- {name: n4, links: "[2001:db8::4]:7001", grpc: "[2001:db8::4]:8081", zone: a}
- {name: n5, links: "n5:7001", grpc: "n5:8081", zone: b}
listen: {links: "0.0.0.0:7001", grpc: "[::]:8081", health: "0.0.0.0:0"}
tls: {ca: ca.crt, cert: /etc/n2.crt, key: keys/n2.key}
memory: 3GiB
logBytes: 100000000
election: 1.5s
logLevel: debug
`

// TestEveryFieldIsTaken, and paths start from the file's folder.
func TestEveryFieldIsTaken(t *testing.T) {
	c, faults := configOf(t, fullConfig)
	if faults != "" {
		t.Fatal(faults)
	}
	folder := filepath.Dir(c.TLS.CA)
	want := &runConfig{
		Name: "n2", Zone: "b", DataDir: "/var/lib/quorate", Partitions: 12, Replication: 5,
		Nodes: []nodeConfig{
			{"n1", "n1.example:7001", "n1.example:8081", "a"},
			{"n2", "n2.example:7001", "n2.example:8081", "b"}, // its own zone is known
			{"n3", "10.0.0.3:7001", "10.0.0.3:8081", "c"},
			{"n4", "[2001:db8::4]:7001", "[2001:db8::4]:8081", "a"},
			{"n5", "n5:7001", "n5:8081", "b"},
		},
		Listen: listenConfig{"0.0.0.0:7001", "[::]:8081", "0.0.0.0:0"},
		TLS:    access.Files{CA: filepath.Join(folder, "ca.crt"), Cert: "/etc/n2.crt", Key: filepath.Join(folder, "keys/n2.key")},
		Memory: 3 << 30, LogBytes: 1e8, Election: 1500 * time.Millisecond, LogLevel: slog.LevelDebug,
	}
	if !reflect.DeepEqual(c, want) || !filepath.IsAbs(folder) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

// TestFlagsWinOverTheFile, and their paths start from the working directory.
func TestFlagsWinOverTheFile(t *testing.T) {
	c, faults := configOf(t, fullConfig, "name", "n3", "zone", "c", "data-dir", "here", linksFlag, "10.0.0.3:1", grpcFlag, "10.0.0.3:2",
		healthFlag, "127.0.0.1:3", "ca", "a", "cert", "b", "key", "c", "log-level", "error")
	if faults != "" {
		t.Fatal(faults)
	}
	if c.Name != "n3" || c.Zone != "c" || c.DataDir != "here" || c.Listen != (listenConfig{"10.0.0.3:1", "10.0.0.3:2", "127.0.0.1:3"}) ||
		c.TLS != (access.Files{CA: "a", Cert: "b", Key: "c"}) || c.LogLevel != slog.LevelError {
		t.Errorf("%+v", c)
	}
	if c, faults := configOf(t, threeLocalNodes, "name", "n2", "data-dir", "here"); faults != "" || c.Listen.GRPC != "127.0.0.1:8083" {
		t.Errorf("what the file lacks, flags give: %s", faults)
	}
}

// TestEveryFaultIsToldAtOnce, each with its line or its flag.
func TestEveryFaultIsToldAtOnce(t *testing.T) {
	text := `name: N1
zone:
datadir: x
partitions: "3"
replication: 4
nodes:
- {name: n1, links: "n1:0", grpc: ":8081", zon: a}
- {name: n2, links: n2, grpc: "0.0.0.0:8081", name: n3}
- n3
- {name: 7, links: "256.1.1.1:7001"}
listen: [a]
tls: {ca: a, password: b, cert: c}
memory: 1
logBytes: 64 megabytes
election: 1
logLevel: loud
`
	want := `f:1: name: "N1" is not a DNS label: a-z, 0-9 and inner hyphens, at most 63
f:1: dataDir: is required, here or by --data-dir
f:2: zone: has no value; leave it out, or give it one
f:3: datadir: unknown field; known here are name, zone, dataDir, partitions, replication, nodes, listen, tls, memory, logBytes, election, logLevel
f:4: partitions: "3" is a string, not a number; leave out the quotes
f:5: replication: "4" is not 3 or 5: a partition outlives the loss of one replica of three, or of two of five
f:7: nodes[0].links: "n1:0" has no port from 1 to 65535
f:7: nodes[0].grpc: ":8081" has no host; write 127.0.0.1:8081 for this machine alone, 0.0.0.0:8081 to listen for all
f:7: nodes[0].zon: unknown field; known here are name, links, grpc, zone
f:8: nodes[1].links: "n2" is not HOST:PORT, as in 127.0.0.1:8081
f:8: nodes[1].grpc: "0.0.0.0:8081" is no address that others can dial; write the machine's own
f:8: nodes[1].name: is given twice
f:9: nodes[2]: is a single value, not a mapping
f:10: nodes[3].name: 7 is not a string; quote it: "7"
f:10: nodes[3].links: "256.1.1.1:7001": its host is no IP address and no host name
f:10: nodes[3].grpc: is required
f:11: listen: is a list, not a mapping
f:12: tls.password: unknown field; known here are ca, cert, key
f:12: tls.key: is missing: --ca, --cert and --key go together; give all three, here or there, or none
f:13: memory: 1 is out of range, 16MiB to 1TiB
f:14: logBytes: "64 megabytes" is not a size; write it as 64MiB or 1GiB
f:15: election: "1" is not a duration; write 1s
f:16: logLevel: "loud" is not one of debug, info, warn, error
--links-address: "x" is not HOST:PORT, as in 127.0.0.1:8081
--zone: "b c" is not a zone: letters, digits, '-', '.' and '_', at most 63`
	if _, got := configOf(t, text, linksFlag, "x", "zone", "b c"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestWhatValuesSayTogetherIsLookedAt: each file has exactly the faults given.
func TestWhatValuesSayTogetherIsLookedAt(t *testing.T) {
	const head = "name: n1\ndataDir: data\n"
	node := func(name, host string) string {
		return "- {name: " + name + ", links: '" + host + ":7001', grpc: '" + host + ":8081'}\n"
	}
	const certificates = "tls: {ca: a, cert: b, key: c}\n"
	for text, want := range map[string]string{
		head: "f:1: nodes: names 0, and it takes 3: of fewer no majority survives the loss of one",
		head + "nodes:\n" + node("n1", "127.0.0.1"):                           "f:3: nodes: names 1, and it takes 3: of fewer no majority survives the loss of one",
		head + "nodes:\n" + node("n1", "127.0.0.1") + node("n2", "127.0.0.2"): "f:3: nodes: names 2, and it takes 3: of fewer no majority survives the loss of one",

		leastConfig + "replication: 5\n":                                        "f:7: replication: 5 replicas don't fit on 3 nodes, at most one each",
		leastConfig + "replication: 3\n" + "partitions: 4096\nmemory: 512MiB\n": "f:9: memory: 512MiB leave 128KiB for each of 4096 partitions, and it takes 256KiB; give more, or have fewer partitions",

		"name: n4\ndataDir: data\n" + threeLocalNodes: "f:1: name: n4 is none of the nodes: name it there, with where it is reached",
		head + "nodes:\n" + node("n1", "127.0.0.1") + node("n1", "127.0.0.2") + node("n3", "127.0.0.1"): "f:5: nodes[1].name: n1 is nodes[0].name too\n" +
			"f:6: nodes[2].links: 127.0.0.1:7001 is nodes[0].links too\nf:6: nodes[2].grpc: 127.0.0.1:8081 is nodes[0].grpc too",
		"zone: a\n" + strings.Replace(leastConfig, `8081"}`, `8081", zone: b}`, 1): "f:1: zone: a is not the zone that nodes has for n1, b; let them agree",

		head + "nodes:\n" + node("n1", "127.0.0.1") + node("n2", "n2.example") + node("n3", "localhost"): "f:5: nodes[1].links: n2.example:7001 is reachable from other machines, which needs certificates: give tls, or use addresses of 127.0.0.1\n" +
			"f:5: nodes[1].grpc: n2.example:8081 is reachable from other machines, which needs certificates: give tls, or use addresses of 127.0.0.1",
		leastConfig + "listen: {grpc: '0.0.0.0:8081', health: '0.0.0.0:8082'}\n": "f:7: listen.grpc: 0.0.0.0:8081 is reachable from other machines, which needs certificates: give tls, or use addresses of 127.0.0.1",
		leastConfig + "listen: {grpc: '0.0.0.0:8081'}\n" + certificates:          "",
		leastConfig + "tls: {}\n": "",
		leastConfig + "listen: {health: '127.0.0.1:8081', links: '127.0.0.1:8081'}\n": "f:7: listen.grpc: 127.0.0.1:8081 is listen.links too\nf:7: listen.health: 127.0.0.1:8081 is listen.links too",
	} {
		if _, got := configOf(t, text); got != want {
			t.Errorf("%s\ngot\n%s\nwant\n%s", text, got, want)
		}
	}
}

// TestWhatIsNoConfigurationIsOneFault.
func TestWhatIsNoConfigurationIsOneFault(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "f:1: is empty",
		"# nothing\n":                       "f:1: is empty",
		"- a\n":                             "f:1: is a list, not a mapping",
		"name: n1\n---\nname: n2\n":         "f:2: has more than one document",
		"name: [\n":                         "f:1: is not YAML: did not find expected node content",
		leastConfig + "tls.ca: a\n":         "f:7: \"tls.ca\": unknown field; known here are name, zone, dataDir, partitions, replication, nodes, listen, tls, memory, logBytes, election, logLevel",
		leastConfig + "nodes[].name: a\n":   "f:7: \"nodes[].name\": unknown field; known here are name, zone, dataDir, partitions, replication, nodes, listen, tls, memory, logBytes, election, logLevel",
		leastConfig + "zone: &a b\n":        "f:7: zone: anchors and aliases are not accepted; write it out",
		leastConfig + "zone: !!str b\n":     "f:7: zone: tags are not accepted",
		leastConfig + "1: b\n":              "f:7: has a name that is not a string: 1",
		leastConfig + "partitions: 1_000\n": `f:7: partitions: "1_000" is not a whole number; write its digits alone`,
		leastConfig + "partitions: 4097\n":  "f:7: partitions: 4097 is out of range, 1 to 4096",
	} {
		if _, got := configOf(t, text); got != want {
			t.Errorf("%q\ngot\n%s\nwant\n%s", text, got, want)
		}
	}
}

// TestTheEffectiveConfigurationReadsBackTheSame.
func TestTheEffectiveConfigurationReadsBackTheSame(t *testing.T) {
	for _, text := range []string{leastConfig, fullConfig, strings.Replace(fullConfig, "100000000", "9437185B", 1)} {
		c, faults := configOf(t, text)
		if faults != "" {
			t.Fatal(faults)
		}
		c.Partitions = c.partitions()
		var shown bytes.Buffer
		if err := c.show(&shown); err != nil {
			t.Fatal(err)
		}
		again, faults := configOf(t, shown.String())
		if faults != "" || !reflect.DeepEqual(again, c) {
			t.Errorf("%s\n%s\ngot  %+v\nwant %+v", shown.String(), faults, again, c)
		}
	}
}

// TestTheDocumentationHasTheReference: docs/running.md shows the table as the software has it.
func TestTheDocumentationHasTheReference(t *testing.T) {
	const page = "../../docs/running.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, opened := strings.Cut(string(text), referenceBegin+"\n")
	_, after, closed := strings.Cut(rest, referenceEnd)
	if !opened || !closed {
		t.Fatalf("%s has no %s and %s", page, referenceBegin, referenceEnd)
	}
	want := before + referenceBegin + "\n\n" + configReference() + "\n" + referenceEnd + after
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s differs; go test ./cmd/quotanode -update writes it anew", page)
	}
}

// runs runs the command, with a node that only notes that it was started.
func runs(t *testing.T, args ...string) (started *runConfig, out string, err error) {
	t.Helper()
	var stdout bytes.Buffer
	cmd := newRunCommand(&stdout, func(_ context.Context, c *runConfig) error {
		started = c
		return nil
	})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	cmd.SetOut(&stdout)
	err = cmd.ExecuteContext(t.Context())
	return started, stdout.String(), err
}

// TestRunStartsOnlyWhatIsRight.
func TestRunStartsOnlyWhatIsRight(t *testing.T) {
	file := filepath.Join(t.TempDir(), "n.yaml")
	if err := os.WriteFile(file, []byte(leastConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, out, err := runs(t, "--config", file, "--name", "n3", "--log-level", "info"); err != nil || out != "" || c == nil || c.Name != "n3" || c.LogLevel != slog.LevelInfo {
		t.Errorf("%+v, %q, %v", c, out, err)
	}
	for want, args := range map[string][]string{
		"--config: is required":                      {},
		"--config: open " + file + "x: no such file": {"--config", file + "x"},
		"--name: n4 is none of the nodes":            {"--config", file, "--name", "n4"},
		"--zone: \"b c\" is not a zone":              {"--config", file, "--zone", "b c"},
		"unknown flag: --http-address":               {"--config", file, "--http-address", ":0"},
		`unknown command "x"`:                        {"--config", file, "x"},
	} {
		c, out, err := runs(t, args...)
		if c != nil || out != "" || err == nil || !strings.HasPrefix(err.Error(), want) || errors.As(err, new(*command.Error)) {
			t.Errorf("%q: %+v, %q, %v", args, c, out, err)
		}
	}
	if err := os.WriteFile(file, bytes.Repeat([]byte("# 4567\n"), maxConfigBytes/7+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := runs(t, "--config", file); err == nil || !strings.Contains(err.Error(), "larger than any configuration") {
		t.Error(err)
	}
}

// TestCheckShowsAndStartsNothing, and looks at the certificates.
func TestCheckShowsAndStartsNothing(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "n.yaml")
	if err := os.WriteFile(file, []byte(leastConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	want := `ok
name: n1
dataDir: ` + folder + `/data
partitions: 3
replication: 3
nodes:
  - name: n1
    links: 127.0.0.1:7001
    grpc: 127.0.0.1:8081
  - name: n2
    links: 127.0.0.1:7002
    grpc: 127.0.0.1:8083
  - name: n3
    links: 127.0.0.1:7003
    grpc: 127.0.0.1:8084
listen:
  links: 127.0.0.1:7001
  grpc: 127.0.0.1:8081
  health: 127.0.0.1:8082
memory: 1GiB
logBytes: 64MiB
election: 1s
logLevel: warn
`
	if c, out, err := runs(t, "--config", file, "--check"); c != nil || out != want || err != nil {
		t.Errorf("%v, %v, got\n%s\nwant\n%s", c, err, out, want)
	}
	if c, out, err := runs(t, "--config", file, "--check", "--ca", folder+"/ca", "--cert", "b", "--key", "c"); c != nil || out != "" ||
		err == nil || !strings.HasPrefix(err.Error(), "tls: read the CA: open "+folder+"/ca: ") {
		t.Errorf("%v, %q, %v", c, out, err)
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
}

// TestRunsHelpTellsFlagsAndExitStatuses.
func TestRunsHelpTellsFlagsAndExitStatuses(t *testing.T) {
	_, out, err := runs(t, "--help")
	for _, want := range []string{"Exit status: 0", "--config", "--check", "--name", "--zone", "--data-dir", "--links-address", "--grpc-address",
		"--health-address", "--ca ", "--cert", "--key", "--log-level", "(in the file: tls.key)"} {
		if !strings.Contains(out, want) || err != nil {
			t.Errorf("no %q in the help, %v", want, err)
		}
	}
}

// FuzzConfig: no input panics, and what is taken reads back the same.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(leastConfig))
	f.Add([]byte(fullConfig))
	f.Add([]byte("nodes: [[]]\ntls: {ca: {}}\nnodes[]: {name: a}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := newConfigReader("/n.yaml")
		r.read(text)
		r.complete()
		r.check()
		if len(r.problems) > 0 {
			return
		}
		var shown bytes.Buffer
		r.config.Partitions = r.config.partitions()
		if err := r.config.show(&shown); err != nil {
			t.Fatal(err)
		}
		again := newConfigReader("/n.yaml")
		again.read(shown.Bytes())
		again.complete()
		again.check()
		if len(again.problems) > 0 || !reflect.DeepEqual(again.config, r.config) {
			t.Errorf("%s\nof\n%s\n%v", shown.Bytes(), text, again.problems)
		}
	})
}
