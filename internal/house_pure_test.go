package internal_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"path"
	"slices"
	"strings"
)

// The folders whose product files are pure. Folders within them are not: they may hold slow oracles.
var pureDirs = []string{"internal/limit", "internal/keyspace", "internal/policy", "internal/fsm"}

// What a pure room may take from the standard library: values, encodings, and the words for them. Time
// is here for time.Duration. The atomics of sync publish a frozen state; nothing here starts a thread.
var pureStd = []string{
	"bufio", "bytes", "cmp", "crypto/sha256", "encoding", "encoding/binary", "encoding/hex", "encoding/json",
	"errors", "fmt", "hash", "hash/crc32", "io", "iter", "maps", "math", "math/bits", "slices", "sort",
	"strconv", "strings", "sync", "sync/atomic", "time", "unicode", "unicode/utf8", "unsafe",
}

func pureFiles(h *house, visit func(source)) {
	product(h, func(f source) {
		if slices.Contains(pureDirs, f.dir) {
			visit(f)
		}
	})
}

func pureImports(h *house) (found []string) {
	pureFiles(h, func(f source) {
		for _, s := range f.syntax.Imports {
			p := importPath(s)
			ours := strings.HasPrefix(p, module+"/") // the arrows judge those
			raft := p == raftModule && f.path == raftFile
			if !ours && !raft && !slices.Contains(pureStd, p) {
				found = append(found, fmt.Sprintf("%s: %s imports %s", h.at(s), f.dir, p))
			}
		}
	})
	return found
}

// pureReach follows imports to the end. The edge to the consensus library is cut: what lies behind it is
// raft.go's to keep out of apply.
func pureReach(h *house) (found []string) {
	forbidden := []string{
		"crypto/rand", "log", "math/big", "math/rand", "net", "os/exec", "os/signal",
		"github.com", "go.etcd.io", "go.yaml.in", "google.golang.org", "k8s.io",
	}
	for _, dir := range pureDirs {
		found = append(found, reaches(h, module+"/"+dir, forbidden)...)
	}
	return found
}

func pureClock(h *house) (found []string) {
	pureFiles(h, func(f source) {
		found = append(found, calls(h, f, "time", "Now", "Since", "Until", "Sleep", "After", "AfterFunc",
			"Tick", "NewTicker", "NewTimer", "Local", "LoadLocation")...)
	})
	return found
}

// inspectPure visits every node of every pure file and reports the nodes for which say is not empty.
func inspectPure(h *house, say func(ast.Node) string) (found []string) {
	pureFiles(h, func(f source) {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if what := say(n); what != "" {
				found = append(found, fmt.Sprintf("%s: %s", h.at(n), what))
			}
			return true
		})
	})
	return found
}

func pureGoroutines(h *house) []string {
	return inspectPure(h, func(n ast.Node) string {
		switch n.(type) {
		case *ast.GoStmt:
			return "starts a goroutine"
		case *ast.SelectStmt:
			return "selects, which chooses by chance"
		}
		return ""
	})
}

// pureFloats: 1e9 is a way to write an integer, unless what it is given to takes it for a float.
func pureFloats(h *house) []string {
	checked := checkTypes(h, pureDirs)
	return inspectPure(h, func(n ast.Node) string {
		switch n := n.(type) {
		case *ast.Ident:
			if slices.Contains([]string{"float32", "float64", "complex64", "complex128"}, n.Name) {
				return n.Name
			}
		case *ast.BasicLit:
			whole := constant.ToInt(constant.MakeFromLiteral(n.Value, n.Kind, 0)).Kind() == constant.Int
			if n.Kind == token.IMAG || n.Kind == token.FLOAT && (!whole || checked.isFloat(n)) {
				return "the number " + n.Value
			}
		}
		return ""
	})
}

// pureMapOrder: a walk over a map is sorted on the spot by slices.Sorted, or stands below a comment that
// says why order doesn't matter, in words that contain "order". The types of this module's own packages
// are known, those of others are not: none of what pure rooms may import gives them a map.
func pureMapOrder(h *house) (found []string) {
	checked := checkTypes(h, pureDirs)
	pureFiles(h, func(f source) {
		excused := map[int]bool{}
		for _, group := range f.syntax.Comments {
			if strings.Contains(strings.ToLower(group.Text()), "order") {
				excused[h.fset.Position(group.End()).Line] = true
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && types.ExprString(call.Fun) == "slices.Sorted" {
				return false
			}
			if !checked.walksMap(n) {
				return true
			}
			if line := h.fset.Position(n.Pos()).Line; !excused[line] && !excused[line-1] {
				found = append(found, h.at(n)+": walks a map without saying why order doesn't matter")
			}
			return true
		})
	})
	return found
}

// typeChecker finds the types of expressions as far as this module's own sources tell.
type typeChecker struct {
	h    *house
	done map[string]*types.Package
	info types.Info
}

func checkTypes(h *house, dirs []string) *typeChecker {
	c := &typeChecker{h: h, done: map[string]*types.Package{}, info: types.Info{Types: map[ast.Expr]types.TypeAndValue{}}}
	for _, dir := range dirs {
		c.check(dir)
	}
	return c
}

// Import makes it a types.Importer: own packages are checked, others stand as empty ones.
func (c *typeChecker) Import(p string) (*types.Package, error) {
	if dir, ours := strings.CutPrefix(p, module+"/"); ours {
		return c.check(dir), nil
	}
	pkg := types.NewPackage(p, path.Base(p))
	pkg.MarkComplete()
	return pkg, nil
}

func (c *typeChecker) check(dir string) *types.Package {
	if pkg, ok := c.done[dir]; ok {
		return pkg
	}
	c.done[dir] = types.NewPackage(module+"/"+dir, path.Base(dir)) // a cycle ends here
	var files []*ast.File
	for _, f := range c.h.files {
		if f.dir == dir && !f.test {
			files = append(files, f.syntax)
		}
	}
	// Errors are expected, since other packages are empty; what could be found out is in info.
	conf := types.Config{Importer: c, Error: func(error) {}}
	pkg, _ := conf.Check(module+"/"+dir, c.h.fset, files, &c.info)
	c.done[dir] = pkg
	return pkg
}

func (c *typeChecker) isFloat(x ast.Expr) bool {
	basic, ok := c.info.Types[x].Type.(*types.Basic)
	return ok && basic.Info()&types.IsFloat != 0 && basic.Info()&types.IsUntyped == 0
}

func (c *typeChecker) walksMap(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		return slices.Contains([]string{"maps.All", "maps.Keys", "maps.Values"}, types.ExprString(n))
	case *ast.RangeStmt:
		if of := c.info.Types[n.X].Type; of != nil {
			_, isMap := of.Underlying().(*types.Map)
			return isMap
		}
	}
	return false
}
