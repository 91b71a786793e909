package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	testName = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9_]*)`")
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(\w+ \*testing\.T\)`)
	fileName = regexp.MustCompile("`([a-z][\\w.-]*(?:/[\\w.-]+)+\\.go)`")
)

// TestPagesNameTestsAndFilesThatAreThere: what a page says is tested is tested by a test of that name, and what it says
// is done is done in a file of that name.
func TestPagesNameTestsAndFilesThatAreThere(t *testing.T) {
	tests := allTests(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "decisions", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"guarantees.md", "failures.md"} {
		pages = append(pages, filepath.Join(root, "docs", page))
	}
	named := 0
	for _, page := range pages {
		content, err := os.ReadFile(page)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		named += len(testName.FindAllString(string(content), -1))
		for _, name := range absent(string(content), tests) {
			t.Errorf("%s names %s, which isn't there", page, name)
		}
	}
	if named < 50 {
		t.Errorf("only %d tests are named: are the pages there?", named)
	}
}

// TestAWrongNameOnAPageIsFound: the check above can fail.
func TestAWrongNameOnAPageIsFound(t *testing.T) {
	page := "`TestHere` `TestGone` `internal/house_test.go` `internal/nowhere.go` `transport/doc.go` `transport/gone.go` `raft.go` Test `Testing`"
	want := []string{"TestGone", "internal/nowhere.go", "transport/gone.go"}
	if got := absent(page, []string{"TestHere"}); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// absent returns the tests and files that a page names and that aren't there. A file is named from the top, or from
// internal.
func absent(page string, tests []string) (names []string) {
	for _, m := range testName.FindAllStringSubmatch(page, -1) {
		if !slices.Contains(tests, m[1]) {
			names = append(names, m[1])
		}
	}
	for _, m := range fileName.FindAllStringSubmatch(page, -1) {
		_, fromTop := os.Stat(filepath.Join(root, m[1]))
		_, fromInternal := os.Stat(filepath.Join(root, "internal", m[1]))
		if fromTop != nil && fromInternal != nil {
			names = append(names, m[1])
		}
	}
	return names
}

// allTests returns the names of all tests of the project.
func allTests(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		content, err := os.ReadFile(path)
		for _, m := range testFunc.FindAllSubmatch(content, -1) {
			names = append(names, string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
