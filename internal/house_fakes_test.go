package internal_test

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// fake is a small house with one fault, and the rule that has to find it.
type fake struct {
	rule  string
	want  string              // part of the one finding
	path  string              // the faulty file
	text  string              // its source
	other map[string]string   // sound files beside it
	edges map[string][]string // what packages outside of the house import
}

var fakes = []fake{
	{rule: "arrows", want: "internal/keyspace imports internal/limit", path: "internal/keyspace/a.go",
		text: `package keyspace; import _ "github.com/quorate/quorate/internal/limit"`},
	{rule: "arrows", want: "internal/limit imports internal/policy", path: "internal/limit/a.go",
		text: `package limit; import _ "github.com/quorate/quorate/internal/policy"`},
	{rule: "arrows", want: "internal/policy imports internal/policy/file", path: "internal/policy/a.go",
		text: `package policy; import _ "github.com/quorate/quorate/internal/policy/file"`},
	{rule: "arrows", want: "internal/limit imports internal/limit/oracle", path: "internal/limit/a.go",
		text: `package limit; import _ "github.com/quorate/quorate/internal/limit/oracle"`},
	{rule: "arrows", want: "internal/partition/store imports internal/server", path: "internal/partition/store/a.go",
		text: `package store; import _ "github.com/quorate/quorate/internal/server"`},
	{rule: "arrows", want: "internal/partition imports api/quota/v1", path: "internal/partition/a.go",
		text: `package partition; import _ "github.com/quorate/quorate/api/quota/v1"`},
	{rule: "arrows", want: "api/client imports internal/partition", path: "api/client/a.go",
		text: `package client; import _ "github.com/quorate/quorate/internal/partition"`},
	{rule: "arrows", want: "internal/node imports test/cluster", path: "internal/node/a.go",
		text: `package node; import _ "github.com/quorate/quorate/test/cluster"`},
	{rule: "arrows", want: "room attic is not in the plan", path: "internal/attic/a.go", text: `package attic`},

	{rule: "raft", want: "imports github.com/hashicorp/raft", path: "internal/fsm/apply.go",
		text: `package fsm; import _ "github.com/hashicorp/raft"`},
	{rule: "raft", want: "imports github.com/hashicorp/raft-boltdb/v2", path: "internal/node/a.go",
		text: `package node; import _ "github.com/hashicorp/raft-boltdb/v2"`},
	{rule: "consensus", want: "RecoverCluster", path: "internal/system/a.go",
		text: `package system; import r "github.com/hashicorp/raft"; var f = r.RecoverCluster`},
	{rule: "consensus", want: "Restore", path: "internal/partition/a.go",
		text: `package partition; import "github.com/hashicorp/raft"; func f(r *raft.Raft) { r.Restore(nil, nil, 0) }`},
	{rule: "consensus", want: "NotifyCh", path: "internal/partition/a.go",
		text: `package partition; import "github.com/hashicorp/raft"; func f(c *raft.Config) { c.NotifyCh = nil }`},
	{rule: "consensus", want: "PreVoteDisabled", path: "internal/partition/a.go",
		text: `package partition; import "github.com/hashicorp/raft"; var c = raft.Config{PreVoteDisabled: true}`},
	{rule: "grpc", want: "imports google.golang.org/grpc/status", path: "internal/partition/a.go",
		text: `package partition; import _ "google.golang.org/grpc/status"`},
	{rule: "kubernetes", want: "imports k8s.io/apimachinery/pkg/runtime", path: "cmd/quotanode/main.go",
		text: `package main; import _ "k8s.io/apimachinery/pkg/runtime"`},
	{rule: "flags", want: "imports flag", path: "internal/node/a.go", text: `package node; import _ "flag"`},
	{rule: "flags", want: "imports github.com/spf13/cobra", path: "internal/server/a.go",
		text: `package server; import _ "github.com/spf13/cobra"`},
	{rule: "exit", want: "os.Exit", path: "internal/node/a.go",
		text: `package node; import "os"; func f() { os.Exit(1) }`},
	{rule: "exit", want: "log.Fatalf", path: "internal/node/a.go",
		text: `package node; import l "log"; func f() { l.Fatalf("") }`},

	{rule: "pure imports", want: "internal/limit imports math/big", path: "internal/limit/a.go",
		text: `package limit; import _ "math/big"`},
	{rule: "pure imports", want: "internal/policy imports math/rand/v2", path: "internal/policy/a.go",
		text: `package policy; import _ "math/rand/v2"`},
	{rule: "pure imports", want: "internal/fsm imports hash/maphash", path: "internal/fsm/a.go",
		text: `package fsm; import _ "hash/maphash"`},
	{rule: "pure imports", want: "internal/fsm imports os", path: "internal/fsm/raft.go",
		text: `package fsm; import _ "os"`},
	{rule: "pure imports", want: "internal/keyspace imports golang.org/x/exp/maps", path: "internal/keyspace/a.go",
		text: `package keyspace; import _ "golang.org/x/exp/maps"`},
	{rule: "pure reach", want: "internal/limit > encoding/json > math/big", path: "internal/limit/a.go",
		text:  `package limit; import _ "encoding/json"`,
		edges: map[string][]string{"encoding/json": {"math/big"}, "math/big": {"math/rand"}}},
	{rule: "pure reach", want: "internal/fsm > example.org/x > net/http", path: "internal/fsm/a.go",
		text:  `package fsm; import _ "example.org/x"`,
		edges: map[string][]string{"example.org/x": {"net/http"}}},
	{rule: "node reach", want: "internal/node > example.org/x > k8s.io/client-go", path: "internal/node/a.go",
		text:  `package node; import _ "example.org/x"`,
		other: map[string]string{"cmd/quotanode/main.go": `package main; import _ "github.com/quorate/quorate/internal/node"`},
		edges: map[string][]string{"example.org/x": {"k8s.io/client-go"}}},

	{rule: "clock", want: "time.Now", path: "internal/fsm/raft.go",
		text: `package fsm; import "time"; func f() time.Time { return time.Now() }`},
	{rule: "clock", want: "time.Since", path: "internal/policy/a.go",
		text: `package policy; import t "time"; var f = t.Since`},
	{rule: "clock", want: "imports time without its name", path: "internal/limit/a.go",
		text: `package limit; import . "time"; func f() Time { return Now() }`},
	{rule: "goroutine", want: "starts a goroutine", path: "internal/fsm/a.go",
		text: `package fsm; func f() { go f() }`},
	{rule: "goroutine", want: "selects", path: "internal/fsm/a.go",
		text: `package fsm; func f() { select {} }`},
	{rule: "float", want: "float64", path: "internal/limit/a.go",
		text: `package limit; func f(n int) float64 { return 0 }`},
	{rule: "float", want: "the number 0.5", path: "internal/limit/a.go", text: `package limit; const half = 0.5`},
	{rule: "float", want: "the number 1e9", path: "internal/limit/a.go", text: `package limit; var second = 1e9`},
	{rule: "map order", want: "walks a map", path: "internal/fsm/a.go",
		text: `package fsm; func f(m map[string]int) { for range m {} }`},
	{rule: "map order", want: "walks a map", path: "internal/fsm/a.go",
		text:  `package fsm; import "github.com/quorate/quorate/internal/policy"; func f(s policy.Set) { for range s.Domains {} }`,
		other: map[string]string{"internal/policy/a.go": `package policy; type table map[string]int; type Set struct { Domains table }`}},
	{rule: "map order", want: "walks a map", path: "internal/fsm/a.go",
		text: `package fsm; import "maps"; func f(m map[string]int) any { return maps.Keys(m) }`},

	{rule: "names", want: "package utils", path: "internal/limit/utils/a.go", text: `package utils`},
	{rule: "names", want: "in test/helpers", path: "test/helpers/a_test.go", text: `package x_test`},
	{rule: "doc", want: "internal/limit: no doc.go", path: "internal/limit/a.go", text: "// Package limit is.\npackage limit"},
	{rule: "doc", want: "internal/limit: no doc.go", path: "internal/limit/doc.go", text: "package limit"},
	{rule: "init", want: "func init", path: "internal/limit/a.go", text: `package limit; func init() {}`},
	{rule: "globals", want: "var Default", path: "internal/limit/a.go", text: `package limit; var Default = 3`},
	{rule: "globals", want: "var ErrLast", path: "internal/limit/a.go", text: `package limit; var ErrLast error`},
	{rule: "length", want: "501 lines", path: "internal/limit/a.go", text: "package limit" + strings.Repeat("\n", 501)},
	{rule: "sleep", want: "time.Sleep", path: "internal/node/a_test.go",
		text: `package node; import "time"; func f() { time.Sleep(1) }`},
	{rule: "unfinished", want: "TODO", path: "internal/node/a_test.go", text: "package node\n// TODO: more"},
}

// TestRulesRefuse: each rule refuses each of its fakes, with one finding that names the fault.
func TestRulesRefuse(t *testing.T) {
	for _, f := range fakes {
		t.Run(f.rule+"/"+f.want, func(t *testing.T) {
			i := slices.IndexFunc(rules, func(r rule) bool { return r.name == f.rule })
			if i < 0 {
				t.Fatalf("no rule %q", f.rule)
			}
			found := rules[i].check(f.build(t))
			if len(found) != 1 || !strings.Contains(found[0], f.want) {
				t.Errorf("found %q, want one finding with %q", found, f.want)
			}
		})
	}
}

// TestEveryRuleHasAFake: a rule that no fake breaks may be one that can't refuse.
func TestEveryRuleHasAFake(t *testing.T) {
	for _, r := range rules {
		if !slices.ContainsFunc(fakes, func(f fake) bool { return f.rule == r.name }) {
			t.Errorf("no fake breaks the rule %q", r.name)
		}
	}
}

// sound is what every rule must let pass: what it forbids, done where and how it is allowed.
var sound = map[string]string{
	"internal/limit/doc.go": "// Package limit is.\npackage limit",
	"internal/limit/a.go": `package limit
import ("errors"; "time")
var ErrFull = errors.New("full")
var powers = [...]uint64{1, 10}
var second int64 = 1e9
const minute = 60e9
type T struct{ D time.Duration }
func (T) init() {}
`,
	"internal/limit/a_test.go": `package limit
import ("math/big"; "math/rand"; "time")
var Seed = rand.Int()
var x big.Int
func f() float64 { go f(); _ = time.Now(); return 0.5 }
`,
	"internal/limit/oracle/doc.go": "// Package oracle is.\npackage oracle\nimport _ \"math/big\"",
	"internal/policy/doc.go":       "// Package policy is.\npackage policy\nimport _ \"github.com/quorate/quorate/internal/limit\"",
	"internal/policy/a.go": `package policy
import ("maps"; "slices")
func f(m map[string]int) (n int, names []string) {
	// In no order: a sum.
	for _, v := range m { n += v }
	names = slices.Sorted(maps.Keys(m))
	for range names {}
	return
}
`,
	"internal/policy/file/doc.go": "// Package file is.\npackage file\nimport _ \"github.com/quorate/quorate/internal/policy\"\nimport _ \"os\"",
	"internal/fsm/doc.go":         "// Package fsm is.\npackage fsm",
	"internal/fsm/raft.go":        `package fsm; import _ "github.com/hashicorp/raft"; func (t) Restore() {}; func f() { t{}.Restored(); Restore() }`,
	"internal/partition/doc.go":   "// Package partition is.\npackage partition\nimport _ \"github.com/quorate/quorate/internal/fsm\"",
	"internal/partition/store/doc.go": `// Package store is.
package store
import (_ "github.com/hashicorp/raft"; _ "github.com/quorate/quorate/internal/partition")
func f() { go f() }
`,
	"internal/server/doc.go": `// Package server is.
package server
import (_ "google.golang.org/grpc"; _ "github.com/quorate/quorate/api/quota/v1"; _ "github.com/quorate/quorate/internal/partition")
`,
	"api/quota/v1/quota.pb.go": "// Code generated by x. DO NOT EDIT.\n\npackage quotav1\nimport _ \"google.golang.org/grpc\"\nfunc init() {}" + strings.Repeat("\n", 600),
	"api/client/a.go":          `package client; import (_ "github.com/quorate/quorate/internal/keyspace"; _ "google.golang.org/grpc")`,
	"cmd/quotanode/main.go": `package main
import ("os"; _ "flag"; _ "github.com/spf13/cobra"; _ "github.com/quorate/quorate/internal/server")
func main() { os.Exit(0) }
`,
	"test/cluster/a.go":      `package cluster; import (_ "google.golang.org/grpc"; "os"); func f() { os.Exit(1) }`,
	"test/cluster/a_test.go": `package cluster; import "time"; func g() { time.Sleep(1) }`,
}

// TestRulesLetPass: no rule refuses what is sound.
func TestRulesLetPass(t *testing.T) {
	f := fake{other: sound, edges: map[string][]string{"github.com/hashicorp/raft": {"math/rand", "net"}}}
	h := f.build(t)
	for _, r := range rules {
		for _, finding := range r.check(h) {
			t.Errorf("%s: %s", r.name, finding)
		}
	}
}

// build reads the fake as a house, whose import graph is that of its own files and its edges.
func (f fake) build(t *testing.T) *house {
	t.Helper()
	tree := fstest.MapFS{}
	for name, text := range f.other {
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	if f.path != "" {
		tree[f.path] = &fstest.MapFile{Data: []byte(f.text)}
	}
	h, err := readHouse(tree)
	if err != nil {
		t.Fatal(err)
	}
	h.imports = map[string][]string{}
	for from, to := range f.edges {
		h.imports[from] = to
	}
	for _, file := range h.files {
		for _, s := range file.syntax.Imports {
			if from := module + "/" + file.dir; !file.test {
				h.imports[from] = append(h.imports[from], importPath(s))
			}
		}
	}
	return h
}
