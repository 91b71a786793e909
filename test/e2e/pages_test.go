package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/test/fence"
)

const (
	readme         = "README.md"
	kubernetesPage = "docs/kubernetes.md"
)

// blockOf is the first of a language below a heading that holds some words.
func blockOf(t *testing.T, page, heading, language, words string) fence.Block {
	t.Helper()
	for _, b := range fence.Below(t, filepath.Join(root, page), heading) {
		if b.Language == language && strings.Contains(b.Text, words) {
			return b
		}
	}
	t.Fatalf("%s: below %q no %s says %q", page, heading, language, words)
	panic("unreachable")
}

// inKubernetes is README's section, which is run as it stands.
const inKubernetes = "In Kubernetes"

// firstPolicy is the one of README.
func firstPolicy(t *testing.T) string {
	t.Helper()
	return blockOf(t, readme, inKubernetes, "yaml", "RateLimitPolicy").Text
}

// person is somebody who types what a page shows, in a checkout with the files that the page speaks of.
type person struct {
	*kubernetes
	dir       string
	addresses *strings.Replacer // of what is forwarded: a free port in place of the one shown
}

func (r *run) person(t *testing.T, files map[string]string) *person {
	t.Helper()
	p := &person{kubernetes: r.kubernetes, dir: t.TempDir(), addresses: strings.NewReplacer()}
	charts, err := filepath.Abs(filepath.Join(root, "charts"))
	if err == nil {
		err = os.Symlink(charts, filepath.Join(p.dir, "charts"))
	}
	for name, text := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// types runs commands, and returns what they print.
func (p *person) types(ctx context.Context, commands string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euc", p.addresses.Replace(commands))
	cmd.Env, cmd.Dir = p.env, p.dir
	cmd.WaitDelay = time.Second // what it started may still hold its output
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", commands, err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// follows runs the commands of a block.
func (p *person) follows(t *testing.T, b fence.Block) {
	t.Helper()
	if _, err := p.types(t.Context(), b.Text); err != nil {
		t.Fatal(err)
	}
}

// sees runs the commands of a transcript, and compares what each prints with the lines below it.
func (p *person) sees(t *testing.T, page string, b fence.Block) {
	t.Helper()
	for _, step := range strings.Split("\n"+b.Text, "\n$ ")[1:] {
		command, want, _ := strings.Cut(step, "\n")
		if command, background := strings.CutSuffix(command, " &"); background {
			p.forwards(t, command)
			continue
		}
		want = strings.TrimSpace(want)
		eventually(t, fmt.Sprintf("%s:%d: %s", page, b.Line, command), func() string {
			got, err := p.types(t.Context(), command)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(got, "503") && !strings.HasPrefix(want, "503") {
				return got // the page says that this may be so at first; nothing is charged then
			}
			if normal(got) != normal(want) {
				t.Fatalf("%s:%d: %s\nprints   %s\nshown is %s", page, b.Line, command, got, want)
			}
			return ""
		})
	}
}

// changing is what isn't the same each time.
var changing = regexp.MustCompile(`retry after \d+`)

func normal(s string) string { return changing.ReplaceAllString(s, "retry after …") }

var forwarding = regexp.MustCompile(`^Forwarding from (127\.0\.0\.1:\d+) -> (\d+)$`)

// forwards runs a command that forwards a port until the step ends, but to a free port of this machine.
func (p *person) forwards(t *testing.T, command string) {
	t.Helper()
	cut := strings.LastIndex(command, " ") + 1
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "bash", "-euc", "exec "+command[:cut]+":"+command[cut:])
	cmd.Env, cmd.Dir = p.env, p.dir
	out, err := cmd.StdoutPipe()
	cmd.Stderr = cmd.Stdout // into the same pipe
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // it ends with what it was told
	})
	var printed strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(&printed, lines.Text())
		if m := forwarding.FindStringSubmatch(lines.Text()); m != nil {
			p.addresses = strings.NewReplacer("127.0.0.1:"+m[2], m[1])
			return
		}
	}
	t.Fatalf("%s forwards nothing: %s", command, printed.String())
}
