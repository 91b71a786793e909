package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/test/fence"
)

const runningPage = "docs/running.md"

// TestRunningNodesShowsWhatHappens runs every command of docs/running.md, on one machine, and compares what it
// prints: from certificates and the first start to a lost disk and another CA.
func TestRunningNodesShowsWhatHappens(t *testing.T) {
	m := newMachines(t)
	m.play(runningPage, "Certificates")
	m.bringCertificates()
	m.configure()
	m.startNodes()
	m.bringFile("policies.yaml", "The first policies")
	m.play(runningPage, "The first policies")
	m.startGateway()
	m.play(runningPage, "Is it well?")
	m.play("docs/policies.md", "Changing policies")
	for _, name := range nodeNames {
		m.stop(name)
		m.startNode(name)
		m.awaits(name, "it is ready", lastLine("ready"))
		m.play(runningPage, "Restarting, one after another")
	}
	m.loseDisk()
	m.changeCA()
	m.isAnswered("u8")
}

// bringCertificates gives every machine its own.
func (m *machines) bringCertificates() {
	m.t.Helper()
	for _, name := range nodeNames {
		m.copy("certs/ca.crt", name, "ca.crt")
		m.copy("certs/"+name+".crt", name, "node.crt")
		m.copy("certs/"+name+".key", name, "node.key")
	}
	for _, file := range []string{"ca.crt", "gateway.crt", "gateway.key"} {
		m.copy("certs/"+file, "api", file)
	}
}

// file is the block of a section that says it is that file.
func (m *machines) file(name, heading string) string {
	m.t.Helper()
	for _, b := range fence.Below(m.t, filepath.Join(root, runningPage), heading) {
		if strings.HasPrefix(b.Text, "# "+name+"\n") {
			return b.Text
		}
	}
	m.t.Fatalf("%s: no file %s below %q", runningPage, name, heading)
	panic("unreachable")
}

func (m *machines) bringFile(name, heading string) {
	m.t.Helper()
	m.write(here, name, []byte(m.file(name, heading)))
}

const configuration = "The configuration of a node"

// configure has the page's own file checked, then gives every node its own with this machine's addresses.
func (m *machines) configure() {
	m.t.Helper()
	text := m.file("quorate.yaml", configuration)
	m.write("n1", "quorate.yaml", []byte(text))
	m.play(runningPage, configuration)
	for _, name := range nodeNames {
		mine := strings.NewReplacer("name: n1\n", "name: "+name+"\n", "0.0.0.0:8082", m.places[name+".example:8082"],
			"/var/lib/quorate", m.path(name, "data")).Replace(text)
		m.write(name, "quorate.yaml", []byte(m.local(mine)))
	}
}

// startNode starts a node by the page's own words.
func (m *machines) startNode(name string) command {
	m.t.Helper()
	all := commandsOf(m.t, runningPage, "Starting")
	if len(all) != 1 || all[0].machine != "n1" {
		m.t.Fatalf("%s: starts are %v", runningPage, all)
	}
	m.start(name, name, all[0].text)
	return all[0]
}

func (m *machines) startNodes() {
	m.t.Helper()
	c := m.startNode("n1")
	addresses := strings.NewReplacer(m.places["n1.example:7001"], "192.0.2.1:7001", m.places["n1.example:8081"], "192.0.2.1:8081",
		m.places["n1.example:8082"], "[::]:8082")
	m.awaits("n1", "it prints what is shown", func(printed string) bool { return alike(c.prints, addresses.Replace(printed)) })
	for _, name := range nodeNames[1:] {
		m.startNode(name)
	}
	for _, name := range nodeNames {
		m.awaits(name, "it is ready", lastLine("ready"))
	}
}

func (m *machines) startGateway() {
	m.t.Helper()
	all := commandsOf(m.t, runningPage, "A gateway")
	p := m.start("api", all[0].machine, all[0].text+
		" --http-address 127.0.0.1:8080 --grpc-address 127.0.0.1:8081 --health-address 127.0.0.1:8082")
	m.awaits("api", "it prints what is shown", func(string) bool { return m.shown(p.printed()) == all[0].prints })
	for _, c := range all[1:] {
		m.playOne(runningPage, c)
	}
}

// loseDisk lets n3 start on a blank disk, and then gives it back its own.
func (m *machines) loseDisk() {
	m.t.Helper()
	m.stop("n3")
	m.must(os.Rename(m.path("n3", "data"), m.path("n3", "kept")))
	m.startNode("n3")
	m.play(runningPage, "A disk that is lost")
	if got, _ := m.run("n3", "curl -s n3.example:8082/metrics"); !strings.Contains(got, "quorate_node_state{state=\"awaiting replacement\"} 1\n") {
		m.t.Error("no metric says that n3 is awaiting replacement")
	}
	m.playOne(runningPage, command{text: "quotactl status $reader > /dev/null || echo missing", prints: "missing"})
	m.isAnswered("u7") // by the two others
	m.stop("n3")
	m.must(os.Rename(m.path("n3", "data"), m.path("n3", "blank")))
	m.must(os.Rename(m.path("n3", "kept"), m.path("n3", "data")))
	m.startNode("n3")
	m.awaits("n3", "it is ready", lastLine("ready"))
}

// isAnswered asks for somebody who has used nothing yet.
func (m *machines) isAnswered(principal string) {
	m.t.Helper()
	m.playOne(runningPage, command{text: "curl -s '127.0.0.1:8080/check?principal=" + principal + "&api_class=convert' | grep -o '\"decision\":\"allow\"'",
		prints: "\"decision\":\"allow\""})
}

// changeCA goes the page's three steps.
func (m *machines) changeCA() {
	m.t.Helper()
	const heading = "Certificates that end"
	all := commandsOf(m.t, runningPage, heading)
	for _, c := range all[:len(all)-1] {
		m.playOne(runningPage, c)
	}
	everywhere := append([]string{"api"}, nodeNames...)
	for _, machine := range everywhere {
		m.copy("both.crt", machine, "ca.crt")
	}
	m.awaitCA("both.crt", "certs")
	for _, name := range nodeNames {
		m.copy("new/"+name+".crt", name, "node.crt")
		m.copy("new/"+name+".key", name, "node.key")
	}
	m.copy("new/gateway.crt", "api", "gateway.crt")
	m.copy("new/gateway.key", "api", "gateway.key")
	m.awaitCA("new/ca.crt", "new")
	for _, machine := range everywhere {
		m.copy("new/ca.crt", machine, "ca.crt")
	}
	m.playOne(runningPage, all[len(all)-1])
	m.refuses("certs")
}

// awaitCA waits until each node shows a certificate of that CA to a reader of that folder.
func (m *machines) awaitCA(ca, of string) {
	m.t.Helper()
	for _, name := range nodeNames {
		m.playOne(runningPage, command{text: "quotactl status --server " + name + ".example:8081 --ca " + ca +
			" --cert " + of + "/reader.crt --key " + of + "/reader.key > /dev/null && echo well", prints: "well"})
	}
}

// refuses waits until no node lets the reader of the folder in.
func (m *machines) refuses(of string) {
	m.t.Helper()
	for _, name := range nodeNames {
		m.playOne(runningPage, command{text: "quotactl status --server " + name + ".example:8081 --ca both.crt --cert " +
			of + "/reader.crt --key " + of + "/reader.key > /dev/null 2>&1 || echo refused", prints: "refused"})
	}
}
