package fence_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/test/fence"
)

// TestASectionEndsWithTheNextOfItsWidth; what looks like a heading in a block is none.
func TestASectionEndsWithTheNextOfItsWidth(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.md")
	text := "# Top\n```\na\n```\n## One\n```sh\nb\n# Two\n```\n### In One\n```\nc\n\nd\n```\n## Two\n```yaml\ne\n```\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for heading, want := range map[string]string{
		"Top":    "2 Top; 6 Top/One sh; 11 Top/One/In One; 17 Top/Two yaml; ",
		"One":    "6 Top/One sh; 11 Top/One/In One; ",
		"In One": "11 Top/One/In One; ",
		"Two":    "17 Top/Two yaml; ",
	} {
		got := ""
		for _, b := range fence.Below(t, path, heading) {
			got += strings.TrimSpace(fmt.Sprint(b.Line, " ", strings.Join(b.Headings, "/"), " ", b.Language)) + "; "
		}
		if got != want {
			t.Errorf("%s: %s", heading, got)
		}
	}
	if got := fence.Blocks(t, path)[1].Text; got != "b\n# Two\n" {
		t.Errorf("%q", got)
	}
}
