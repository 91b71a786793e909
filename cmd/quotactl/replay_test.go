package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/cmd/internal/command"
)

// ran is what a run of the program came to.
type ran struct {
	status    int
	out, errs string
}

func (r ran) summary(t *testing.T) (s map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.out), &s); err != nil {
		t.Fatalf("%v: %s%s", err, r.out, r.errs)
	}
	return s
}

func runWith(in string, args ...string) ran {
	var out, errs bytes.Buffer
	root := newRootCommand()
	root.SetIn(strings.NewReader(in))
	status := command.Run(context.Background(), root, args, &out, &errs)
	return ran{status, out.String(), errs.String()}
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const fiveRows = "ts,key,cost\n0,u,1\n10,u,1\n20,u,1\n50,u,1\n60,u,1\n"

var ofFive = []string{"--limit", "3", "--window", "60s", "--key-column", "key"}

// Files, standard input and gzip are read alike, and flags may follow the files.
func TestReplayReadsFilesStandardInputAndGzip(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(fiveRows))
	_ = z.Close()
	plain, zipped := writeFile(t, "a.csv", fiveRows), writeFile(t, "packed", packed.String())
	for name, r := range map[string]ran{
		"file":        runWith("", append([]string{"replay", plain, "-o", "json"}, ofFive...)...),
		"gzip":        runWith("", append([]string{"replay", "-o", "json", zipped}, ofFive...)...),
		"-":           runWith(fiveRows, append([]string{"replay", "-", "-o", "json"}, ofFive...)...),
		"input":       runWith(fiveRows, append([]string{"replay", "-o", "json"}, ofFive...)...),
		"gzip, input": runWith(packed.String(), append([]string{"replay", "-o", "json"}, ofFive...)...),
		"named": runWith("", append([]string{"replay", plain, "-o", "json", "--format", "csv",
			"--time-column", "ts", "--cost-column", "cost", "--time-unit", "s"}, ofFive...)...),
	} {
		s := r.summary(t)
		if r.status != command.OK || s["lines"] != 6.0 || s["requests"] != 5.0 || s["allowed"] != 4.0 || s["denied"] != 1.0 || s["bad"] != 0.0 {
			t.Errorf("%s: status %d, %s", name, r.status, r.out)
		}
	}
}

// With the decisions on standard output the report goes to standard error.
func TestDecisionsOnStandardOutput(t *testing.T) {
	r := runWith(fiveRows, append([]string{"replay", "--decisions", "-"}, ofFive...)...)
	var decisions []string
	for line := range strings.Lines(r.out) {
		var d struct {
			Line       int
			Time, Key  string
			Decision   string
			RetryAfter *int   `json:"retry_after"`
			Remaining  int    `json:"remaining"`
			Limit      int    `json:"limit"`
			LimitName  string `json:"limit_name"`
		}
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		wait := "null"
		if d.RetryAfter != nil {
			wait = fmt.Sprint(*d.RetryAfter)
		}
		decisions = append(decisions, fmt.Sprintf("%d %s %s %s %d of %d", d.Line, d.Key, d.Decision, wait, d.Remaining, d.Limit))
	}
	want := "2 u allow null 2 of 3;3 u allow null 1 of 3;4 u allow null 0 of 3;5 u deny 10 0 of 3;6 u allow null 0 of 3"
	if got := strings.Join(decisions, ";"); got != want || r.status != command.OK {
		t.Errorf("got %s, status %d", got, r.status)
	}
	if !strings.Contains(r.errs, "1 of 5 requests would have been blocked") {
		t.Errorf("the report: %s", r.errs)
	}
}

// Nothing used is a failure, and the numbers say why; so is input that can't be read to its end.
func TestCSV15ExitStatus(t *testing.T) {
	many := "ts,key\n" + strings.Repeat("1,u\n", 99) + "never,u\n"
	for name, tc := range map[string]struct {
		in     string
		status int
	}{
		"empty":              {"", command.Failure},
		"blank lines only":   {"\n\n  \n", command.Failure},
		"header only":        {"ts,key\n", command.Failure},
		"all rows bad":       {"ts,key\nx,u\ny,u\n", command.Failure},
		"one percent bad":    {many, command.OK},
		"cut off in gzip":    {"\x1f\x8b\x08\x00\x00\x00\x00\x00", command.Failure},
		"UTF-16":             {"\xff\xfet\x00s\x00", command.Failure},
		"a needed column":    {"ts,other\n1,u\n", command.Usage},
		"no column of times": {"a,key\n1,u\n", command.Usage},
	} {
		r := runWith(tc.in, append([]string{"replay", "-o", "json"}, ofFive...)...)
		if r.status != tc.status || tc.status != command.OK && !strings.Contains(r.errs, "quotactl: ") {
			t.Errorf("%s: status %d, want %d\n%s%s", name, r.status, tc.status, r.out, r.errs)
		}
	}
}

// Bad lines are told with their numbers, a few of each kind, and how many more there were.
func TestWarningsAreFewAndCounted(t *testing.T) {
	r := runWith("ts,key\n"+strings.Repeat("x,u\n", 12)+"1,u\n", append([]string{"replay"}, ofFive...)...)
	want := ""
	for line := 2; line <= 6; line++ {
		want += fmt.Sprintf("warning: -:%d: time: no time in a known form: \"x\"\n", line)
	}
	want += "warning: 7 more lines were bad: time\n"
	if r.errs != want || r.status != command.OK {
		t.Errorf("status %d, got\n%swant\n%s", r.status, r.errs, want)
	}
}

// Each misuse is told before anything is read or written.
func TestReplayRefusesWrongUsage(t *testing.T) {
	good := writeFile(t, "p.yaml", "policies:\n- name: p\n  key: [key]\n  limits:\n  - {name: l, rollingWindow: {limit: 1, window: 1s}}\n")
	two := writeFile(t, "two.yaml", "policies:\n- name: p\n  key: [key]\n  domain: a\n  limits:\n  - {name: l, rollingWindow: {limit: 1, window: 1s}}\n"+
		"- name: q\n  key: [key]\n  domain: b\n  limits:\n  - {name: l, rollingWindow: {limit: 1, window: 1s}}\n")
	for args, want := range map[string]string{
		"":                       "say what to replay",
		"--limit 3 --key ip":     "--limit and --window go together",
		"--limit 3 --window 60s": "either --key or --key-column",
		"--limit 3 --window 60s --key ip --key-column k":             "either --key or --key-column",
		"--limit 3 --window 60 --key ip":                             "--window",
		"--limit 3 --window 60s --rate 2 --burst 2 --key ip":         "exclude each other",
		"--rate 2 --key ip":                                          "--rate and --burst go together",
		"--rate x --burst 2 --key ip":                                "--rate",
		"--rate 0 --burst 2 --key ip":                                "--rate",
		"--rate 2 --burst 2 --key ip --algorithm fixed":              "a bucket's",
		"--limit 3 --window 60s --key ip --algorithm leaky":          "want rolling, fixed, counter or bucket",
		"--limit 3 --window 60s --key ip,,host":                      "a name is empty",
		"--limit 3 --window 60s --key ip,ip":                         "make no policy",
		"--policy " + good + " --limit 3":                            "exclude each other",
		"--against " + good + " --limit 3 --window 60s --key ip":     "need --policy",
		"--policy " + good + " --domain other":                       "has no policy for it",
		"--policy " + good + " --against " + two:                     "has no policy for the domain",
		"--policy " + two:                                            "--domain: a, b",
		"--limit 3 --window 60s --key ip -o yaml":                    "want text or json",
		"--limit 3 --window 60s --key ip --memory 3":                 "at least 16MB",
		"--limit 3 --window 60s --key ip --memory much":              "want a size",
		"--limit 3 --window 60s --key ip --temp-dir /no/such/folder": "--temp-dir",
		"--limit 3 --window 60s --key ip --time-zone Nowhere/Nohow":  "--time-zone",
		"--limit 3 --window 60s --key ip --time-zone Local":          "--time-zone",
		"--limit 3 --window 60s --key ip --time-unit h":              "--time-unit",
		"--limit 3 --window 60s --key ip --format apache":            "--format",
		"--limit 3 --window 60s --key ip --ipv6-prefix 0":            "--ipv6-prefix",
		"--limit 3 --window 60s --key ip --trusted-hops -1":          "--trusted-hops",
		"--limit 3 --window 60s --key ip --top -1":                   "--top",
		"--limit 3 --window 60s --key ip - -":                        "named twice",
		"--limit 3 --window 60s --key ip --decisions - --no-such":    "unknown flag",
	} {
		r := runWith(fiveRows, append([]string{"replay"}, strings.Fields(args)...)...)
		if r.status != command.Usage || !strings.Contains(r.errs, want) || r.out != "" {
			t.Errorf("%s: status %d, want it to say %q:\n%s%s", args, r.status, want, r.out, r.errs)
		}
	}
	for args, want := range map[string]string{
		"/no/such/file --limit 3 --window 60s --key ip":                         "no such file",
		t.TempDir() + " --limit 3 --window 60s --key ip":                        "is a folder",
		"--policy " + writeFile(t, "bad.yaml", "policies:\n- name: p\n"):        "bad.yaml:2",
		"--limit 3 --window 60s --key-column key --decisions /no/such/folder/f": "no such file",
	} {
		r := runWith(fiveRows, append([]string{"replay"}, strings.Fields(args)...)...)
		if r.status != command.Failure || !strings.Contains(r.errs, want) {
			t.Errorf("%s: status %d, want it to say %q:\n%s%s", args, r.status, want, r.out, r.errs)
		}
	}
}

// A policy file's columns are entries under their own names; what nodes don't enforce yet is taken.
func TestReplayTakesPolicyFilesWhole(t *testing.T) {
	path := writeFile(t, "p.yaml", `
policies:
- name: conversions
  key: [principal]
  match: {api_class: convert}
  limits:
  - {name: per-minute, rollingWindow: {limit: 2, window: 60s}}
  tiers:
  - {when: {tier: pro}, amounts: {per-minute: {limit: 3}}}
  overrides:
  - {when: {principal: root}, amounts: {per-minute: {unlimited: true}}}
  costs:
  - {when: {operation: bulk}, cost: 2}
  onUnavailable: Allow
  allowAdjust: true
  transition: FromNow
- name: watched
  key: [principal]
  mode: Shadow
  limits:
  - {name: hourly, fixedWindow: {limit: 1, window: 1h}}
domains:
- {name: default, onNoMatch: Allow, required: [principal]}
`)
	rows := `time,principal,api_class,tier,operation
0,u,convert,,
0,u,convert,,
0,u,convert,,
0,p,convert,pro,
0,p,convert,pro,bulk
0,p,convert,pro,
0,root,convert,,
0,u,other,,
0,,convert,,
`
	r := runWith(rows, "replay", "--policy", path, "--decisions", "-", "-o", "json")
	var got []string
	for line := range strings.Lines(r.out) {
		var d struct {
			Line     int
			Decision string
			Policy   string
			Shadow   bool
		}
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		got = append(got, fmt.Sprintf("%d %s %s %v", d.Line, d.Decision, strings.TrimPrefix(d.Policy, "default/"), d.Shadow))
	}
	want := []string{
		"2 allow conversions false", "3 deny watched true", "4 deny conversions false",
		"5 allow conversions false", "6 deny watched true", "7 deny conversions false",
		"8 allow conversions false", "9 deny watched true",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), r.errs)
	}
	if !strings.Contains(r.errs, "no principal") {
		t.Errorf("the row without a principal: %s", r.errs)
	}
}

// Rates are exact: half a token a second is one in two.
func TestParseRateIsExact(t *testing.T) {
	for text, want := range map[string][2]uint64{
		"2": {2, 1}, "0.5": {1, 2}, "2.25": {9, 4}, "100": {100, 1}, "0.000000001": {1, 1e9}, "1.0": {1, 1}, ".5": {1, 2},
	} {
		if tokens, seconds, err := parseRate(text); err != nil || [2]uint64{tokens, seconds} != want {
			t.Errorf("%s: %d in %d s, %v", text, tokens, seconds, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "1e3", "0.0000000001", "x", "+1", "99999999999999999999"} {
		if tokens, seconds, err := parseRate(text); err == nil {
			t.Errorf("%q: %d in %d s", text, tokens, seconds)
		}
	}
}

func TestByteSizesAreReadAsPeopleWriteThem(t *testing.T) {
	for text, want := range map[string]byteSize{"300MB": 300e6, "1GiB": 1 << 30, "64 MiB": 64 << 20, "17": 17, "5KB": 5000, "8B": 8, "300mb": 300e6} {
		var b byteSize
		if err := b.Set(text); err != nil || b != want {
			t.Errorf("%s: %d, %v", text, b, err)
		}
		var again byteSize
		if err := again.Set(b.String()); err != nil || again != b {
			t.Errorf("%s is written %s, which is %d", text, b.String(), again)
		}
	}
	for _, text := range []string{"", "MB", "-1MB", "1.5GB", "99999999999GiB", "1TB"} {
		var b byteSize
		if err := b.Set(text); err == nil {
			t.Errorf("%q: %d", text, b)
		}
	}
}

// What the page shows for flags is a policy file that does the same.
func TestFlagsAreShownAsThePolicyFileThatTheyMean(t *testing.T) {
	rows := writeFile(t, "rows.csv", "ts,key,other name\n0,u,a\n0,u,a\n0,u,a\n1,u,a\n1.5,u,b\n2,u,a\n")
	for _, flags := range []string{
		"--limit 2 --window 1500ms --key-column key", "--limit 2 --window 1s --key key --algorithm fixed",
		"--limit 2 --window 1s --key key --algorithm counter", "--limit 2 --window 1s --key key --algorithm bucket",
		"--rate 0.5 --burst 2 --key key", "--limit 200000 --window 60s --key key,ts",
	} {
		l := &limitFlags{}
		c := &cobra.Command{}
		l.register(c)
		if err := c.ParseFlags(strings.Fields(flags)); err != nil {
			t.Fatal(err)
		}
		text, err := l.describe()
		if err != nil {
			t.Fatal(err)
		}
		byFlags := runWith("", append([]string{"replay", rows, "--decisions", "-"}, strings.Fields(flags)...)...)
		byFile := runWith("", "replay", rows, "--decisions", "-", "--policy", writeFile(t, "p.yaml", text))
		if byFlags.out != byFile.out || byFlags.status != command.OK || byFlags.out == "" {
			t.Errorf("%s, as\n%s\n%s\nthe file:\n%s", flags, text, byFlags.out+byFlags.errs, byFile.out+byFile.errs)
		}
	}
}

// An output never destroys what a replay reads, or what was there before a replay that fails.
func TestOutputsDestroyNothing(t *testing.T) {
	rows, policy := writeFile(t, "rows.csv", fiveRows), writeFile(t, "p.yaml", "policies:\n- name: p\n  key: [key]\n  limits:\n  - {name: l, rollingWindow: {limit: 1, window: 1s}}\n")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(rows, link); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	for _, args := range []string{
		rows + " --decisions " + rows, rows + " --html " + rows, rows + " --decisions " + link, link + " --html " + rows,
		rows + " --decisions " + policy, rows + " --html " + policy, rows + " --decisions " + out + " --html " + out,
	} {
		r := runWith("", append([]string{"replay", "--policy", policy}, strings.Fields(args)...)...)
		if r.status != command.Failure || !strings.Contains(r.errs, "would be written over") {
			t.Errorf("%s: status %d, %s", args, r.status, r.errs)
		}
	}
	unchanged := func(path, want string) {
		t.Helper()
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v", path, got, err)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.tmp")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	unchanged(rows, fiveRows)
	if _, err := os.Stat(out); err == nil {
		t.Error("an output of a refused replay is there")
	}
	before := writeFile(t, "before", "precious")
	page := writeFile(t, "page", "precious")
	if r := runWith("", append([]string{"replay", writeFile(t, "none.csv", "ts,other\n1,u\n"), "--decisions", before, "--html", page}, ofFive...)...); r.status == command.OK {
		t.Error("a column is missing, and it is fine")
	}
	unchanged(before, "precious")
	unchanged(page, "precious")
	if r := runWith("", append([]string{"replay", rows, "--decisions", before, "--html", page}, ofFive...)...); r.status != command.OK {
		t.Errorf("status %d: %s", r.status, r.errs)
	}
	for path, want := range map[string]string{before: `"decision":"deny"`, page: "<!DOCTYPE html>"} {
		if got, err := os.ReadFile(path); err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s holds %.80q, %v", path, got, err)
		}
	}
	for _, args := range []string{rows, writeFile(t, "empty.csv", "")} { // a device is written, never removed
		runWith("", append([]string{"replay", args, "--decisions", os.DevNull, "--html", os.DevNull}, ofFive...)...)
		if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
			t.Fatalf("%s: %v, %v", os.DevNull, info, err)
		}
	}
}

// One file that is empty, or can't be read, costs no other its report.
func TestAnEmptyOrUnreadableFileCostsNoOther(t *testing.T) {
	rows := writeFile(t, "rows.csv", fiveRows)
	for name, tc := range map[string]struct {
		content string
		status  int
	}{
		"empty": {"", command.OK}, "blank": {"\n\n", command.OK}, "header": {"ts,key\n", command.OK},
		"half a gzip header": {"\x1f\x8b", command.Failure}, "UTF-16": {"\xff\xfet\x00", command.Failure},
	} {
		r := runWith("", append([]string{"replay", "-o", "json", rows, writeFile(t, "other", tc.content)}, ofFive...)...)
		if s := r.summary(t); r.status != tc.status || s["requests"] != 5.0 {
			t.Errorf("%s: status %d, %v requests: %s", name, r.status, s["requests"], r.errs)
		}
	}
}

// An interruption is heard while a pipe is waited for.
func TestReplayIsInterruptedWhileItWaits(t *testing.T) {
	waits, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs bytes.Buffer
	root := newRootCommand()
	root.SetIn(waits)
	go func() {
		_, _ = io.WriteString(writer, "ts,key\n1,u\n")
		cancel() // and nothing more comes
	}()
	status := command.Run(ctx, root, append([]string{"replay"}, ofFive...), &out, &errs)
	if status != command.Failure || !strings.Contains(errs.String(), "interrupted") || out.Len() > 0 {
		t.Errorf("status %d: %s%s", status, out.String(), errs.String())
	}
	_ = writer.Close()
}

// A policy whose column no row has never matches: that is said, once an input, and not only shown as a
// hundred percent blocked.
func TestAColumnThatPoliciesLookAtAndAnInputLacksIsToldOf(t *testing.T) {
	policy := writeFile(t, "p.yaml", "policies:\n- name: p\n  key: [tenant]\n  limits:\n  - {name: l, rollingWindow: {limit: 1, window: 1s}}\n")
	for name, log := range map[string]string{
		"csv":      fiveRows,
		"combined": `192.0.2.1 - - [07/Dec/2016:10:05:06 +0000] "GET / HTTP/1.1" 200 1 "-" "agent"` + "\n",
	} {
		r := runWith("", "replay", "--policy", policy, writeFile(t, "log", log))
		if want := "has no column tenant, which the policies look at"; r.status != command.OK || strings.Count(r.errs, want) != 1 {
			t.Errorf("%s: status %d, %s", name, r.status, r.errs)
		}
	}
	if r := runWith("", append([]string{"replay", writeFile(t, "log", fiveRows)}, ofFive...)...); r.errs != "" {
		t.Errorf("nothing is lacking: %s", r.errs)
	}
}
