package internal_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// rule is one thing that this house insists on.
type rule struct {
	name  string
	why   string
	check func(*house) []string // findings, "file:line: what"
}

var rules = []rule{
	{"arrows", "each room imports only the rooms below it", arrows},
	{"raft", "only partition, transport, system and fsm/raft.go name hashicorp/raft", onlyThere("raft")},
	{"consensus", "it would drop entries that a majority holds, or stop Raft's main loop", consensus},
	{"grpc", "only server, gateway, api, transport, node and operator name grpc", onlyThere("grpc")},
	{"kubernetes", "only operator, api/policy and cmd/operator name Kubernetes", onlyThere("kubernetes")},
	{"flags", "only cmd reads flags", onlyThere("flags")},
	{"exit", "only cmd decides that the process ends", exits},
	{"pure imports", "a pure room knows values only", pureImports},
	{"pure reach", "what a pure room imports is as pure", pureReach},
	{"clock", "time is an argument in a pure room", pureClock},
	{"goroutine", "a pure room runs in its caller's thread", pureGoroutines},
	{"float", "a decision is made in integers", pureFloats},
	{"map order", "a pure room gives every replica the same bytes", pureMapOrder},
	{"node reach", "a node runs without Kubernetes", nodeReach},
	{"names", "a room is called by what it is", names},
	{"doc", "every package says what it is", docs},
	{"init", "nothing happens before main", inits},
	{"globals", "nobody can change what everybody reads", globals},
	{"length", "a file above 500 lines hides a type", lengths},
	{"sleep", "a test that sleeps is slow and still flaky", sleeps},
	{"unfinished", "what is here is finished", unfinished},
}

// plan says, for each room below internal, which rooms it may import. A new room is entered here and in
// docs/architecture.md first.
var plan = func() map[string][]string {
	pure := []string{"limit", "keyspace", "policy"}
	group := append(slices.Clone(pure), "fsm", "clock", "transport")
	top := append(slices.Clone(group), "policy/file", "partition", "system", "node", "server", "gateway", "access")
	replay := append(slices.Clone(pure), "fsm", "origin", "replay/accesslog", "replay/order")
	return map[string][]string{
		"limit":       {},
		"keyspace":    {},
		"policy":      {"limit", "keyspace"},
		"policy/file": pure,
		"fsm":         pure,
		"clock":       {},
		"transport":   {},
		"partition":   group,
		"system":      append(slices.Clone(group), "partition"),
		"node":        top,
		"server":      top,
		"gateway":     top,
		"console":     top,
		"operator":    append(slices.Clone(pure), "policy/file", "access"),
		"origin":      {},
		"access":      {},
		"configfile":  {},

		"replay":           replay,
		"replay/accesslog": {},
		"replay/order":     {},
		"replay/report":    append(slices.Clone(replay), "replay"),
	}
}()

// Rooms that may import generated and client code of api. The others are reached through them.
var apiUsers = []string{"node", "server", "gateway", "console", "operator"}

const raftModule = "github.com/hashicorp/raft"

// raftFile is the one file of a pure room that speaks to the consensus library.
const raftFile = "internal/fsm/raft.go"

// territory is where a family of packages may be named.
type territory struct{ packages, places []string }

var territories = map[string]territory{
	"raft":       {[]string{"github.com/hashicorp"}, []string{"internal/partition", "internal/transport", "internal/system", raftFile}},
	"grpc":       {[]string{"google.golang.org/grpc"}, []string{"internal/server", "internal/gateway", "internal/transport", "internal/node", "internal/operator", "api"}},
	"kubernetes": {[]string{"k8s.io", "sigs.k8s.io"}, []string{"internal/operator", "api/policy", "cmd/operator"}},
	"flags":      {[]string{"flag", "github.com/spf13/pflag", "github.com/spf13/cobra"}, []string{"cmd"}},
}

// within says whether name is one of the prefixes or lies below one, by whole path elements.
func within(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool {
		return name == p || strings.HasPrefix(name, p+"/")
	})
}

// roomOf gives the room that a folder belongs to: the longest name of the plan that fits, else the first
// element below internal.
func roomOf(dir string) (string, bool) {
	rest, ok := strings.CutPrefix(dir, "internal/")
	if !ok {
		return "", false
	}
	for room := rest; room != "."; room = path.Dir(room) {
		if _, known := plan[room]; known {
			return room, true
		}
	}
	first, _, _ := strings.Cut(rest, "/")
	return first, true
}

// product calls visit for every file that ships and was written by a person. What lies under test/ is
// free to start processes and clients of every kind.
func product(h *house, visit func(source)) {
	for _, f := range h.files {
		if !f.test && !f.generated && !within(f.dir, []string{"test"}) {
			visit(f)
		}
	}
}

func importPath(s *ast.ImportSpec) string {
	p, err := strconv.Unquote(s.Path.Value)
	if err != nil {
		panic(err) // the parser has accepted it
	}
	return p
}

func arrows(h *house) (found []string) {
	product(h, func(f source) {
		room, inRoom := roomOf(f.dir)
		below, planned := plan[room]
		if inRoom && !planned {
			found = append(found, fmt.Sprintf("%s: room %s is not in the plan", f.path, room))
			return
		}
		for _, s := range f.syntax.Imports {
			target, ours := strings.CutPrefix(importPath(s), module+"/")
			if ours && !mayImport(f.dir, room, below, target) {
				found = append(found, fmt.Sprintf("%s: %s imports %s", h.at(s), f.dir, target))
			}
		}
	})
	return found
}

// mayImport says whether product code in dir may import the folder target of this module.
func mayImport(dir, room string, below []string, target string) bool {
	to, toRoom := roomOf(target)
	switch {
	case target == "cmd/internal/command":
		return within(dir, []string{"cmd"}) && dir != target
	case within(target, []string{"cmd", "test", "tools"}):
		return false
	case within(dir, []string{"cmd"}):
		return true
	case within(dir, []string{"api/client/clienttest"}) && slices.Contains([]string{"fsm", "policy/file"}, to): // it decides, too
		return true
	case within(dir, []string{"api"}): // the client resolves checks itself, with the pure rooms
		return !toRoom || slices.Contains(plan["fsm"], to)
	case !toRoom:
		return slices.Contains(apiUsers, room)
	case to == room:
		return !slices.Contains(pureDirs, dir)
	default:
		return slices.Contains(below, to)
	}
}

func onlyThere(family string) func(*house) []string {
	return func(h *house) (found []string) {
		t := territories[family]
		product(h, func(f source) {
			for _, s := range f.syntax.Imports {
				if within(importPath(s), t.packages) && !within(f.path, t.places) {
					found = append(found, fmt.Sprintf("%s: imports %s", h.at(s), importPath(s)))
				}
			}
		})
		return found
	}
}

// calls reports every mention of one of a package's names, whatever the file calls the package.
func calls(h *house, f source, pkg string, forbidden ...string) (found []string) {
	local := ""
	for _, s := range f.syntax.Imports {
		if importPath(s) != pkg {
			continue
		}
		local = path.Base(pkg)
		if s.Name != nil {
			local = s.Name.Name
		}
		if local == "." {
			return []string{fmt.Sprintf("%s: imports %s without its name", h.at(s), pkg)}
		}
	}
	if local == "" {
		return nil
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := s.X.(*ast.Ident); ok && x.Name == local && slices.Contains(forbidden, s.Sel.Name) {
			found = append(found, fmt.Sprintf("%s: %s.%s", h.at(n), pkg, s.Sel.Name))
		}
		return true
	})
	return found
}

// consensus refuses what the library offers and nobody here may take (docs/decisions/raft.md): what makes a log or a
// state up, what its main loop waits for, and elections without the question that comes first.
func consensus(h *house) (found []string) {
	product(h, func(f source) {
		if !slices.ContainsFunc(f.syntax.Imports, func(s *ast.ImportSpec) bool { return importPath(s) == raftModule }) {
			return
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if name := selected(n); slices.Contains(notOurs, name) {
				found = append(found, fmt.Sprintf("%s: %s", h.at(n), name))
			}
			return true
		})
	})
	return found
}

var notOurs = []string{"RecoverCluster", "BootstrapCluster", "Restore", "NotifyCh", "PreVoteDisabled"}

// selected is the name that a selector or a literal's field has.
func selected(n ast.Node) string {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		return n.Sel.Name
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok {
			return key.Name
		}
	}
	return ""
}

func exits(h *house) (found []string) {
	product(h, func(f source) {
		if !within(f.dir, []string{"cmd"}) {
			found = append(found, calls(h, f, "os", "Exit")...)
			found = append(found, calls(h, f, "log", "Fatal", "Fatalf", "Fatalln")...)
		}
	})
	return found
}

func nodeReach(h *house) []string {
	return reaches(h, module+"/cmd/quotanode", territories["kubernetes"].packages)
}

// reaches gives a shortest chain of imports to each forbidden package.
func reaches(h *house, from string, forbidden []string) (found []string) {
	chain := map[string]string{from: from}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		for _, p := range h.imports[queue[0]] {
			ours := within(p, []string{module})
			if _, seen := chain[p]; seen || p == raftModule && from == module+"/internal/fsm" {
				continue
			}
			chain[p] = chain[queue[0]] + " > " + p
			if !ours && within(p, forbidden) {
				found = append(found, chain[p])
				continue
			}
			queue = append(queue, p)
		}
	}
	return found
}

func names(h *house) (found []string) {
	banned := []string{"util", "utils", "common", "helper", "helpers", "manager", "types", "misc", "shared"}
	for _, f := range h.files {
		name := strings.TrimSuffix(f.syntax.Name.Name, "_test")
		if slices.Contains(banned, name) || slices.Contains(banned, path.Base(f.dir)) {
			found = append(found, fmt.Sprintf("%s: package %s in %s", f.path, name, f.dir))
		}
	}
	return found
}

func docs(h *house) (found []string) {
	documented := map[string]bool{}
	product(h, func(f source) {
		if !within(f.dir, []string{"internal"}) {
			return
		}
		begins := "Package " + f.syntax.Name.Name + " "
		isDoc := path.Base(f.path) == "doc.go" && f.syntax.Doc != nil && strings.HasPrefix(f.syntax.Doc.Text(), begins)
		documented[f.dir] = documented[f.dir] || isDoc
	})
	for _, dir := range sortedKeys(documented) {
		if !documented[dir] {
			found = append(found, dir+": no doc.go with a package comment")
		}
	}
	return found
}

func inits(h *house) (found []string) {
	product(h, func(f source) {
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				found = append(found, h.at(d)+": func init")
			}
		}
	})
	return found
}

// globals: an exported package variable can be set by anybody, so only sentinel errors, which nobody
// has a reason to set, may be one.
func globals(h *house) (found []string) {
	product(h, func(f source) {
		for _, d := range f.syntax.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.VAR || !within(f.dir, []string{"internal"}) {
				continue
			}
			for _, spec := range decl.Specs {
				v := spec.(*ast.ValueSpec)
				for i, name := range v.Names {
					if name.IsExported() && !isSentinel(v, i) {
						found = append(found, fmt.Sprintf("%s: var %s", h.at(name), name.Name))
					}
				}
			}
		}
	})
	return found
}

func isSentinel(v *ast.ValueSpec, i int) bool {
	if !strings.HasPrefix(v.Names[i].Name, "Err") || i >= len(v.Values) {
		return false
	}
	call, ok := v.Values[i].(*ast.CallExpr)
	if !ok {
		return false
	}
	made := types.ExprString(call.Fun)
	return made == "errors.New" || made == "fmt.Errorf"
}

func lengths(h *house) (found []string) {
	product(h, func(f source) {
		if f.lines > 500 {
			found = append(found, fmt.Sprintf("%s: %d lines", f.path, f.lines))
		}
	})
	return found
}

// sleeps lets files sleep whose tests run in virtual time.
func sleeps(h *house) (found []string) {
	for _, f := range h.files {
		virtual := slices.ContainsFunc(f.syntax.Imports, func(s *ast.ImportSpec) bool {
			return importPath(s) == "testing/synctest"
		})
		if f.test && !virtual && !within(f.dir, []string{"test/cluster", "test/e2e", "test/bench"}) {
			found = append(found, calls(h, f, "time", "Sleep")...)
		}
	}
	return found
}

var unfinishedWords = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)

func unfinished(h *house) (found []string) {
	for _, f := range h.files {
		for _, group := range f.syntax.Comments {
			if word := unfinishedWords.FindString(group.Text()); word != "" && !f.generated {
				found = append(found, fmt.Sprintf("%s: %s", h.at(group), word))
			}
		}
	}
	return found
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
