package image_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/test/image"
)

const name = "localhost/quorate:test"

// stage is what the Dockerfile's last stage says.
type stage struct {
	from       string
	copies     map[string]string // path in the image, without the slash, to path in the build's folder
	user       string
	entrypoint []string
}

// lastStage reads the Dockerfile. It knows no more than that one uses, and refuses the rest.
func lastStage(t *testing.T) (s stage) {
	t.Helper()
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		switch rest := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), words[0])); words[0] {
		case "FROM":
			s = stage{from: words[1], copies: map[string]string{}}
		case "USER":
			s.user = words[1]
		case "ENTRYPOINT":
			if err := json.Unmarshal([]byte(rest), &s.entrypoint); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		case "COPY", "RUN", "WORKDIR":
			if s.from != "scratch" {
				continue // of a stage that is left behind
			}
			source, ok := strings.CutPrefix(strings.Join(words[1:min(3, len(words))], " "), "--from=build /src/")
			if !ok || words[0] != "COPY" || len(words) != 4 || strings.HasSuffix(words[3], "/") {
				t.Fatalf("%s: want COPY --from=build /src/FILE /FILE", line)
			}
			s.copies[strings.TrimPrefix(words[3], "/")] = source
		default:
			t.Fatalf("%s: what would make image do?", line)
		}
	}
	return s
}

// standIns makes a folder of programs, each of which is its name.
func standIns(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, program := range []string{"quotanode", "gateway", "operator", "quotactl"} {
		if err := os.WriteFile(filepath.Join(dir, program), []byte(program), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// pack runs what `make image` runs once the programs are built, and returns the tar.
func pack(t *testing.T, programs string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "quorate.tar")
	if said, err := exec.Command("../../tools/kube/image.sh", programs, out, name).CombinedOutput(); err != nil {
		t.Fatalf("image.sh: %v\n%s", err, said)
	}
	return out
}

func TestImageIsWhatTheDockerfileSays(t *testing.T) {
	want, programs := lastStage(t), standIns(t)
	got, err := image.Read(pack(t, programs))
	if err != nil {
		t.Fatal(err)
	}
	if want.from != "scratch" || len(want.copies) < 4 {
		t.Fatalf("the Dockerfile's last stage is %+v", want)
	}
	if got.Name != name || got.User != want.user || !slices.Equal(got.Entrypoint, want.entrypoint) {
		t.Errorf("name %s, user %s, entry point %q; the Dockerfile says %s, %q", got.Name, got.User, got.Entrypoint, want.user, want.entrypoint)
	}
	for path, source := range want.copies {
		mode := int64(0o644)
		if program, ok := strings.CutPrefix(source, "dist/programs/"); ok {
			source, mode = filepath.Join(programs, program), 0o755
		} else {
			source = filepath.Join("../..", source)
		}
		data, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		f, ok := got.Files[path]
		if !ok || !bytes.Equal(f.Data, data) || f.Mode != mode || f.Owner != 0 || f.Group != 0 {
			t.Errorf("/%s: there %t, %d bytes, mode %o, of %d:%d", path, ok, len(f.Data), f.Mode, f.Owner, f.Group)
		}
		delete(got.Files, path)
	}
	for path := range got.Files {
		t.Errorf("/%s is not in the Dockerfile", path)
	}
}

func TestImageRunsAsNobodyInParticular(t *testing.T) {
	user, group, ok := strings.Cut(lastStage(t).user, ":")
	if !ok || user == "0" || group == "0" || strings.Trim(user+group, "0123456789") != "" {
		t.Errorf("user %s, group %s: want numbers other than 0, which the kubelet can tell from root", user, group)
	}
}

func TestSameProgramsMakeTheSameImage(t *testing.T) {
	one, other := standIns(t), standIns(t)
	long := time.Unix(1, 0)
	if err := os.Chtimes(filepath.Join(other, "gateway"), long, long); err != nil {
		t.Fatal(err)
	}
	a, errA := os.ReadFile(pack(t, one))
	b, errB := os.ReadFile(pack(t, other))
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("two images of the same programs differ (%v, %v)", errA, errB)
	}
	if err := os.WriteFile(filepath.Join(other, "gateway"), []byte("another"), 0o700); err != nil {
		t.Fatal(err)
	}
	if c, err := os.ReadFile(pack(t, other)); err != nil || bytes.Equal(a, c) {
		t.Errorf("an image of another program is the same (%v)", err)
	}
}

// TestDockerfileBuildsAsMakeDoes: one recipe makes the programs, and it makes them static.
func TestDockerfileBuildsAsMakeDoes(t *testing.T) {
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil || !bytes.Contains(text, []byte("\nRUN make programs\n")) {
		t.Errorf("the Dockerfile doesn't make programs (%v)", err)
	}
	cmd := exec.Command("make", "-n", "programs")
	cmd.Dir = "../.."
	said, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(said, []byte("CGO_ENABLED=0 ")) || !bytes.Contains(said, []byte(" -trimpath ")) {
		t.Errorf("make programs: %v\n%s", err, said)
	}
}
