package mutants

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the module's, as seen from here.
const root = "../.."

// failures are the names of the tests that failed, in what go test printed.
var failures = regexp.MustCompile(`(?m)--- FAIL: \S+`)

type mutant struct {
	name, file, pkg, test string
	old, new              string
}

// TestMutants: every mutant is killed by the test that it names.
func TestMutants(t *testing.T) {
	if os.Getenv("MUTANTS") == "" {
		t.Skip("slow; MUTANTS=1 runs it")
	}
	all := readMutants(t)
	testsPass(t, all)
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) { kill(t, m) })
	}
}

// TestMutantsApply: every mutant still finds the text that it replaces, exactly once.
func TestMutantsApply(t *testing.T) {
	for _, m := range readMutants(t) {
		if _, err := m.apply(); err != nil {
			t.Error(err)
		}
	}
}

func readMutants(t *testing.T) []mutant {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no mutants in testdata (%v)", err)
	}
	var all []mutant
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		some, err := parse(string(data))
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		all = append(all, some...)
	}
	return all
}

func parse(text string) ([]mutant, error) {
	var all []mutant
	for n, line := range strings.Split(text, "\n") {
		field, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" || line[0] == '#':
			continue
		case field == "mutant":
			all = append(all, mutant{name: value})
			continue
		case len(all) == 0:
			return nil, fmt.Errorf("line %d belongs to no mutant", n+1)
		}
		switch m := &all[len(all)-1]; {
		case line[0] == '-':
			m.old += line[1:] + "\n"
		case line[0] == '+':
			m.new += line[1:] + "\n"
		case field == "file":
			m.file, m.pkg = value, "./"+path.Dir(value)
		case field == "package":
			m.pkg = value
		case field == "test":
			m.test = value
		default:
			return nil, fmt.Errorf("line %d is neither a field nor a change: %q", n+1, line)
		}
	}
	for _, m := range all {
		if m.file == "" || m.test == "" || m.old == "" {
			return nil, fmt.Errorf("mutant %q lacks its file, its test or the text to replace", m.name)
		}
	}
	return all, nil
}

// apply returns the file with the change made.
func (m mutant) apply() (string, error) {
	source, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		return "", fmt.Errorf("mutant %q: its text occurs %d times in %s:\n%s", m.name, n, m.file, m.old)
	}
	return strings.Replace(string(source), m.old, m.new, 1), nil
}

// testsPass makes sure that the named tests exist and pass while nothing is broken:
// a test that fails anyway kills nothing.
func testsPass(t *testing.T, all []mutant) {
	t.Helper()
	tests := map[string][]string{}
	for _, m := range all {
		if !slices.Contains(tests[m.pkg], m.test) {
			tests[m.pkg] = append(tests[m.pkg], m.test)
		}
	}
	for pkg, names := range tests {
		out, err := goTest(pkg, "^("+strings.Join(names, "|")+")$", "-v")
		if err != nil {
			t.Fatalf("%s fails unbroken: %v\n%s\n%s", pkg, err, failures.FindAllString(out, -1), out)
		}
		for _, name := range names {
			if !strings.Contains(out, "--- PASS: "+name+" ") {
				t.Errorf("%s: no test %s has passed", pkg, name)
			}
		}
	}
}

// kill runs the named test against the broken file. Only an assertion counts: a
// mutant that doesn't compile, that panics or that hangs proves nothing about the test.
func kill(t *testing.T, m mutant) {
	broken, err := m.apply()
	if err != nil {
		t.Fatal(err)
	}
	out, err := goTest(m.pkg, "^"+m.test+"$", "-overlay="+overlay(t, m.file, broken))
	switch {
	case err == nil:
		t.Errorf("%s passes with %s broken", m.test, m.file)
	case strings.Contains(out, "panic: "):
		t.Errorf("%s panics, where it should have an assertion:\n%s", m.test, out)
	case !strings.Contains(out, "--- FAIL: "+m.test+" "):
		t.Errorf("the mutant doesn't run: %v\n%s", err, out)
	}
}

// overlay writes what go build needs in order to read the broken file in the place of the good one.
func overlay(t *testing.T, file, broken string) string {
	t.Helper()
	good, err := filepath.Abs(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	bad := filepath.Join(dir, filepath.Base(file))
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{good: bad}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	for name, content := range map[string]string{bad: broken, list: string(text)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

func goTest(pkg, run string, flags ...string) (string, error) {
	args := append([]string{"test", "-count=1", "-vet=off", "-timeout=60s", "-run", run}, flags...)
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestParseRefuses what would make a mutant that breaks nothing or proves nothing.
func TestParseRefuses(t *testing.T) {
	const whole = "mutant: m\nfile: a/b.go\ntest: TestX\n-old\n+new\n"
	got, err := parse("# remark\n\n" + whole)
	want := mutant{name: "m", file: "a/b.go", pkg: "./a", test: "TestX", old: "old\n", new: "new\n"}
	if err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{
		"file: a/b.go\n",
		strings.Replace(whole, "file: a/b.go\n", "", 1),
		strings.Replace(whole, "test: TestX\n", "", 1),
		strings.Replace(whole, "-old\n", "", 1),
		whole + "tset: TestX\n",
	} {
		if got, err := parse(text); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
}
