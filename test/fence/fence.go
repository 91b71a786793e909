package fence

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Block is a fenced block.
type Block struct {
	Language, Text string
	Line           int      // of its first fence, from 1
	Headings       []string // that it stands below, the widest first
}

// Blocks are those of a file. The test ends if the last one has no end.
func Blocks(t testing.TB, path string) (all []Block) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var open *Block
	var headings []string // by level
	for i, line := range strings.Split(string(content), "\n") {
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			open = &Block{Language: language, Line: i + 1, Headings: slices.Clone(headings)}
		case fence:
			all, open = append(all, *open), nil
		case open != nil:
			open.Text += line + "\n"
		case strings.HasPrefix(line, "#"):
			headings = below(headings, line)
		}
	}
	if open != nil {
		t.Fatalf("%s:%d: a block that never ends", path, open.Line)
	}
	return all
}

// below puts a heading in the place of those of its level and of narrower ones.
func below(headings []string, line string) []string {
	title := strings.TrimLeft(line, "#")
	level := len(line) - len(title)
	headings = headings[:min(len(headings), level-1)]
	for len(headings) < level-1 {
		headings = append(headings, "")
	}
	return append(headings, strings.TrimSpace(title))
}

// Below are the blocks of a section, and of the narrower ones in it. The test ends if there is none.
func Below(t testing.TB, path, heading string) (all []Block) {
	t.Helper()
	for _, b := range Blocks(t, path) {
		if slices.Contains(b.Headings, heading) {
			all = append(all, b)
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s has no block below %q", path, heading)
	}
	return all
}
