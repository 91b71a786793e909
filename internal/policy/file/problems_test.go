package file_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/policy/file"
)

// TestProblemsNameTheirPolicy: namespace and name, or what of them can be read.
func TestProblemsNameTheirPolicy(t *testing.T) {
	const rest = "limits: [{name: l, fixedWindow: {limit: 1, window: 1d}}], key: [a]"
	for names, want := range map[string]string{
		"name: p, namespace: media": "media/p",
		"name: p":                   "default/p",
		"name: Nonsense":            "default/Nonsense",
		"name: p, namespace: 3":     "p",
		"name: p, namespace: ''":    "p",
		"name: p, namespaze: media": "p",
		"name: 3, namespace: media": "",
		"namespace: media":          "",
	} {
		e := problemsIn(t, "policies:\n- {name: first, global: true, "+strings.Replace(rest[:len(rest)-len(", key: [a]")], "1d", "1m", 1)+"}\n- {"+names+", "+rest+"}\n")
		for _, p := range e.Problems {
			if p.Policy != want || p.Line != 3 || !strings.HasPrefix(p.Path, "policies[1].") {
				t.Errorf("%s: %+v, want %q", names, p, want)
			}
		}
	}
	for _, text := range []string{"policies: 3", "policies: [3]", "policies: []\ndomains: [{name: 3}]", "x"} {
		for _, p := range problemsIn(t, text).Problems {
			if p.Policy != "" {
				t.Errorf("%s: %+v", text, p)
			}
		}
	}
}

func problemsIn(t *testing.T, text string) *file.Error {
	t.Helper()
	e := new(file.Error)
	if _, err := file.Parse("f", []byte(text)); !errors.As(err, &e) || len(e.Problems) == 0 {
		t.Fatalf("%s: got %v", text, err)
	}
	return e
}

// TestProblemsAreBounded: of very many the first are told, and that there may be more, wherever they are.
func TestProblemsAreBounded(t *testing.T) {
	const most = 1000
	var fields, entries strings.Builder
	for i := range 5 * most {
		fmt.Fprintf(&fields, "x%d: 1\n", i)
		fmt.Fprintf(&entries, "- {name: p%d, key: [a], limits: [{name: l, fixedWindow: {limit: 1, window: 1m}}], mode: shadow}\n", i)
	}
	for name, text := range map[string]string{
		"a list":                               "policies: [" + strings.Repeat("1, ", 5*most) + "1]",
		"a mapping":                            fields.String(),
		"large JSON":                           large(`{"policies": [` + strings.Repeat("1, ", 5*most) + "1]}"),
		"what is valid YAML, and no valid set": "policies:\n" + entries.String(),
	} {
		e := problemsIn(t, text)
		if last := e.Problems[len(e.Problems)-1]; len(e.Problems) != most+1 || last.Message != "there may be more than these 1000" || last.Line < e.Problems[most-1].Line {
			t.Errorf("%s: %d problems, the last is %+v", name, len(e.Problems), last)
		}
	}
}
