package main

import (
	"log/slog"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/access"
)

// TestDefaultsAreThisMachine.
func TestDefaultsAreThisMachine(t *testing.T) {
	s, err := readSettings("", map[string]string{"nodes": "127.0.0.1:9001"})
	want := &settings{nodes: []string{"127.0.0.1:9001"}, http: "127.0.0.1:8080", grpc: "127.0.0.1:8081", health: "127.0.0.1:8082", level: slog.LevelWarn}
	if err != nil || !reflect.DeepEqual(s, want) {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestAFileSaysWhatFlagsSay, its paths being relative to its folder.
func TestAFileSaysWhatFlagsSay(t *testing.T) {
	file := write(t, "gateway.yaml", `
nodes: [n1.example:8081, "n2.example:8081"]
httpAddress: 127.0.0.1:1
grpcAddress: 0.0.0.0:2
healthAddress: 0.0.0.0:3
ca: ca.crt
cert: certs/gateway.crt
key: /run/gateway.key
logLevel: debug
`)
	s, err := readSettings(file, nil)
	dir := filepath.Dir(file)
	want := &settings{
		nodes: []string{"n1.example:8081", "n2.example:8081"}, http: "127.0.0.1:1", grpc: "0.0.0.0:2", grpcWanted: true, health: "0.0.0.0:3", level: slog.LevelDebug,
		files: access.Files{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "certs/gateway.crt"), Key: "/run/gateway.key"},
	}
	if err != nil || !reflect.DeepEqual(s, want) {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestAFlagWinsOverTheFile, whose other settings stay.
func TestAFlagWinsOverTheFile(t *testing.T) {
	file := write(t, "gateway.yaml", "nodes: [n1.example:8081]\nlogLevel: debug\nca: ca.crt\n")
	s, err := readSettings(file, map[string]string{"nodes": "n2.example:8081", "ca": "other.crt", "cert": "g.crt", "key": "g.key"})
	if err != nil || len(s.nodes) != 1 || s.nodes[0] != "n2.example:8081" || s.level != slog.LevelDebug ||
		s.files != (access.Files{CA: "other.crt", Cert: "g.crt", Key: "g.key"}) {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestAFileIsReadStrictly: every problem is told at once, with its line, and nothing is ignored.
func TestAFileIsReadStrictly(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "FILE:1: is empty",
		"# nothing\n":                 "FILE:1: is empty",
		"nodes: [a":                   "FILE:1: is not YAML: ",
		"nodes: [a:1]\n---\nnodes: 1": "FILE:2: has more than one document",
		"[]":                          "FILE:1: is a list, not a mapping",
		"nodes: a:1":                  "FILE:1: nodes: is a single value, not a list",
		"nodes: []":                   "FILE:1: nodes: is empty",
		"nodes: [a:1, 7]":             "FILE:1: nodes[1]: 7 is not a string; quote it: \"7\"",
		"nodes: [\"a:1,b:1\"]":        "FILE:1: nodes: \"a:1,b:1\" has a comma; give each one an item of its own",
		"nodes:":                      "FILE:1: nodes: has no value; leave it out, or give it one",
		"nodes: &x [a:1]":             "FILE:1: nodes: anchors and aliases are not accepted; write it out",
		"nodes: !!seq [a:1]":          "FILE:1: nodes: tags are not accepted",
		"1: x\nnodes: [a:1]":          "FILE:1: has a name that is not a string",
		"nodes: [a:1]\nnodes: [b:1]":  "FILE:2: nodes: is given twice",
		"nodes: [a:1]\nca: {}":        "FILE:2: ca: is a mapping, not a single value\n--cert: is missing: --ca, --cert and --key go together; give all three, here or in the file, or none\n--key: is missing: --ca, --cert and --key go together; give all three, here or in the file, or none",
		"\nhttpAdress: x\nlogLevel: 3\nnodes: [x]\nhealthAddress: \"x:y\"": "FILE:2: httpAdress: unknown field; known are nodes, httpAddress, grpcAddress, healthAddress, ca, cert, key, logLevel\n" +
			"FILE:3: logLevel: 3 is not a string; quote it: \"3\"\n" +
			"FILE:4: nodes: \"x\" is not HOST:PORT, as in 127.0.0.1:8081\n" +
			"FILE:5: healthAddress: \"x:y\" has no port from 0 to 65535",
	} {
		file := write(t, "g.yaml", text)
		_, err := readSettings(file, nil)
		if err == nil {
			t.Errorf("%q is accepted", text)
			continue
		}
		got := strings.ReplaceAll(err.Error(), file, "FILE")
		// Whoever names no nodes hears of that too.
		got = strings.TrimSuffix(got, "\n--nodes: is required: whom to ask, as in --nodes 127.0.0.1:8081")
		if got != want && !(strings.HasSuffix(want, ": ") && strings.HasPrefix(got, want)) {
			t.Errorf("%q:\n%s\nwant\n%s", text, got, want)
		}
	}
	if _, err := readSettings(write(t, "g.yaml", strings.Repeat("#", 1<<20+1)), nil); err == nil || !strings.Contains(err.Error(), "larger than any configuration") {
		t.Errorf("a huge file: %v", err)
	}
}
