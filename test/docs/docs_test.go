// Package docs runs what the documentation shows: the commands of README.md
// against the program that they are about, and every policy file on its pages.
package docs

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/policy/file"
	"github.com/quorate/quorate/test/fence"
)

const root = "../.."

// TestPolicyFilesInTheDocumentationAreValid reads every YAML block that holds policies.
func TestPolicyFilesInTheDocumentationAreValid(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		page = strings.TrimPrefix(page, root+"/")
		for _, b := range fence.Blocks(t, filepath.Join(root, page)) {
			if b.Language != "yaml" || !strings.Contains(b.Text, "policies:") {
				continue
			}
			read++
			if _, err := file.Read(fmt.Sprintf("%s:%d", page, b.Line), strings.NewReader(b.Text)); err != nil {
				t.Error(err)
			}
		}
	}
	if read < 2 {
		t.Errorf("only %d policy files found", read)
	}
}

// TestLinksLeadSomewhere follows the relative links of every page.
func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(content), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

// TestREADMEShowsWhatHappens runs the first command of the README and then, while
// it runs, each command of its transcripts, and compares what they print. Only
// the addresses are others, so that it doesn't matter what runs on this machine.
func TestREADMEShowsWhatHappens(t *testing.T) {
	needCurl(t)
	var start string
	var transcripts []fence.Block
	for _, b := range fence.Blocks(t, filepath.Join(root, "README.md")) {
		switch {
		case b.Language == "sh" && start == "":
			start = strings.TrimSpace(b.Text)
		case b.Language == "console":
			transcripts = append(transcripts, b)
		}
	}
	if !strings.HasPrefix(start, "go run ./cmd/quotanode dev") || len(transcripts) == 0 {
		t.Fatalf("README.md begins with %q and has %d transcripts", start, len(transcripts))
	}
	addresses := startDev(t, start)
	for _, b := range transcripts {
		play(t, b, addresses)
	}
}

// needCurl fails where everything has to be there, and skips elsewhere.
func needCurl(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err == nil {
		return
	}
	const missing = "curl is missing: Debian's package curl brings it"
	if os.Getenv("CI") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

// startDev runs the command with free ports and returns what replaces the
// addresses that the page shows.
func startDev(t *testing.T, command string) *strings.Replacer {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	words := append(strings.Fields(command), "--data-dir", t.TempDir(),
		"--http-address", "127.0.0.1:0", "--grpc-address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0")
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir = root
	// "go run" passes no signal on: the whole group is told.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 20 * time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		stop()
		for range lines { // joins the reader
		}
		_ = cmd.Wait() // "go run" ends with the signal
	})
	found := map[string]string{}
	deadline := time.After(3 * time.Minute)
	for len(found) < 3 {
		select {
		case line, ok := <-lines:
			if !ok {
				t.Fatalf("%s ended: %s", command, stderr.String())
			}
			if name, address, ok := strings.Cut(line, " "); ok && (name == "http" || name == "grpc" || name == "metrics") {
				found[name] = address
			}
		case <-deadline:
			t.Fatalf("%s printed only %v within three minutes: %s", command, found, stderr.String())
		}
	}
	return strings.NewReplacer("127.0.0.1:8080", found["http"], "127.0.0.1:8081", found["grpc"], "127.0.0.1:8082", found["metrics"])
}

// play runs the commands of a transcript, those behind "$ ", and compares what
// each prints with the lines below it.
func play(t *testing.T, b fence.Block, addresses *strings.Replacer) {
	t.Helper()
	for _, step := range strings.Split("\n"+b.Text, "\n$ ")[1:] {
		command, want, _ := strings.Cut(step, "\n")
		cmd := exec.Command("sh", "-c", addresses.Replace(command))
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		got := strings.TrimSpace(string(out))
		if want = strings.TrimSpace(want); !matches(want, got) {
			t.Errorf("README.md:%d: %s\nprints   %s\nshown is %s\n(%v)", b.Line, command, got, want, err)
		}
	}
}

// matches compares the lines; a retry after may be a second or two less, as time passes
// between the commands, and ids and times differ each time.
func matches(want, got string) bool { return normal(want) == normal(got) }

var changing = regexp.MustCompile(`\b(5[789]|6[01])\b|[0-9a-f]{32}|"decision_time_ns":\d+`)

func normal(s string) string { return changing.ReplaceAllString(s, "…") }
