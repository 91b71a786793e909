// Package internal_test holds the rules of the house as a test: who may import whom, which rooms know
// no clock and no chance, and the habits that a reader relies on. docs/architecture.md gives the
// reasons. The rules are in house_rules_test.go; house_fakes_test.go proves that each of them can
// refuse.
package internal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/quorate/quorate"

// TestHouse holds this repository to every rule.
func TestHouse(t *testing.T) {
	h := thisHouse(t)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, finding := range r.check(h) {
				t.Errorf("%s (%s)", finding, r.why)
			}
		})
	}
}

// TestEveryRoomIsDescribed: docs/architecture.md names each room, so that it can be found there.
func TestEveryRoomIsDescribed(t *testing.T) {
	doc, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	described := strings.Fields(string(doc))
	for _, room := range thisHouse(t).rooms() {
		if !slices.Contains(described, "internal/"+room) {
			t.Errorf("internal/%s is not in docs/architecture.md", room)
		}
	}
}

// TestNoticeNamesEveryLinkedModule: NOTICE names each module that a program of ours contains, and the
// very version of those whose licence asks where the source is found.
func TestNoticeNamesEveryLinkedModule(t *testing.T) {
	notice, err := os.ReadFile("../NOTICE")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]string{} // module path to version, which may be empty
	for line := range strings.Lines(string(notice)) {
		name, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(line, "  ") && strings.Contains(name, "/") && named[name] == "" {
			named[name] = version
		}
	}
	for name, version := range thisHouse(t).modules {
		switch want, ok := named[name]; {
		case !ok:
			t.Errorf("NOTICE doesn't name %s %s", name, version)
		case strings.HasPrefix(want, "v") && want != version:
			t.Errorf("NOTICE says %s %s, linked is %s", name, want, version)
		}
	}
}

// source is one parsed Go file.
type source struct {
	path      string // from the repository's root, with slashes
	dir       string // its folder
	test      bool   // _test.go
	generated bool   // says so in its first lines
	lines     int
	syntax    *ast.File
}

// house is everything that rules look at.
type house struct {
	fset    *token.FileSet
	files   []source
	imports map[string][]string // import path to what it imports, all the way down, without tests
	modules map[string]string   // module path to version, of what the packages of the house link
}

// at is where a node stands, as an editor understands it.
func (h *house) at(n ast.Node) string {
	p := h.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// rooms are the folders below internal that hold product code, sorted; rooms within rooms count as the
// outer one unless the plan knows them by name.
func (h *house) rooms() []string {
	seen := map[string]bool{}
	for _, f := range h.files {
		if room, ok := roomOf(f.dir); ok && !f.test {
			seen[room] = true
		}
	}
	return sortedKeys(seen)
}

// thisHouse reads the repository that the test stands in.
func thisHouse(t *testing.T) *house {
	t.Helper()
	h, err := readHouse(os.DirFS(".."))
	if err != nil {
		t.Fatal(err)
	}
	if len(h.files) == 0 || len(h.rooms()) == 0 {
		t.Fatal("no product code found: the rules would pass without having looked")
	}
	h.imports, h.modules = listPackages(t)
	return h
}

// readHouse parses every Go file of the product; what other modules and test data hold is not ours.
func readHouse(root fs.FS) (*house, error) {
	h := &house{fset: token.NewFileSet()}
	for _, top := range []string{"api", "cmd", "internal", "test"} {
		err := fs.WalkDir(root, top, func(name string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "testdata":
				return fs.SkipDir
			case d.IsDir() || path.Ext(name) != ".go":
				return nil
			}
			return h.add(root, name)
		})
		if err != nil {
			return nil, err
		}
	}
	return h, nil
}

func (h *house) add(root fs.FS, name string) error {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return err
	}
	syntax, err := parser.ParseFile(h.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	h.files = append(h.files, source{
		path:      name,
		dir:       path.Dir(name),
		test:      strings.HasSuffix(name, "_test.go"),
		generated: ast.IsGenerated(syntax),
		lines:     bytes.Count(text, []byte("\n")),
		syntax:    syntax,
	})
	return nil
}

// listPackages asks the go command for the whole import graph and for the modules in it.
func listPackages(t *testing.T) (imports map[string][]string, modules map[string]string) {
	t.Helper()
	args := []string{"list", "-e", "-deps", "-buildvcs=false", "-json=ImportPath,Imports,Module"}
	for _, top := range []string{"api", "cmd", "internal"} {
		if _, err := os.Stat("../" + top); err == nil {
			args = append(args, "./"+top+"/...")
		}
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	imports, modules = map[string][]string{}, map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
			Module     *struct{ Path, Version string }
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return imports, modules
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		imports[p.ImportPath] = p.Imports
		if p.Module != nil && p.Module.Path != module {
			modules[p.Module.Path] = p.Module.Version
		}
	}
}
