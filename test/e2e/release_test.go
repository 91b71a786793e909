package e2e_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// certificatesRenewed: certificates of a minute, through two of their lives.
func certificatesRenewed(t *testing.T, r *run) {
	r.load.mark("certificates of a minute")
	r.helm(t, "upgrade", "quorate", chart, "--namespace", namespace, "--set", "certificates.lifetime=60s")
	ends := map[string]float64{}
	shown := func(name string) float64 { return r.metric(name, "quorate_certificate_not_after_seconds") }
	for i := range nodes {
		name := fmt.Sprint("quorate-", i)
		eventually(t, name+" to have a certificate of a minute", func() string {
			ends[name] = shown(name)
			if left := ends[name] - float64(time.Now().Unix()); ends[name] < 0 || left > 60 {
				return fmt.Sprintf("its certificate holds for %.0f s", left)
			}
			return ""
		})
	}
	for renewal := 1; renewal <= 2; renewal++ {
		for name, end := range ends {
			eventually(t, fmt.Sprintf("renewal %d of the certificate of %s", renewal, name), func() string {
				if ends[name] = shown(name); ends[name] <= end {
					return fmt.Sprintf("it ends at %.0f, before at %.0f", ends[name], end)
				}
				return ""
			})
		}
		r.load.goesOn(t)
	}
	r.helm(t, "upgrade", "quorate", chart, "--namespace", namespace, "--reset-values")
	for i := range nodes {
		name := fmt.Sprint("quorate-", i)
		eventually(t, name+" to have a certificate of the usual length", func() string {
			if left := shown(name) - float64(time.Now().Unix()); left < 3600 {
				return fmt.Sprintf("its certificate holds for %.0f s", left)
			}
			return ""
		})
	}
	r.whole(t)
	r.load.goesOn(t)
}

// identities are what a release has to keep when it is uninstalled: volumes, CA, policies.
func (r *run) identities(t *testing.T) (list []string) {
	t.Helper()
	for _, what := range [][]string{
		{"persistentvolumeclaims"}, {"secret/quorate-ca"}, {"crd/ratelimitpolicies.quorate.dev"}, {"ratelimitpolicies.quorate.dev"},
	} {
		args := append([]string{"get", "--namespace", namespace, "-o", "name"}, what...)
		for name := range strings.FieldsSeq(r.kubectl(t, args...)) {
			about := r.kubectl(t, "get", "--namespace", namespace, "-o", "jsonpath={.metadata.uid} {.metadata.deletionTimestamp}", name)
			if _, deleted, _ := strings.Cut(about, " "); deleted != "" {
				t.Errorf("%s is to be deleted since %s, and stays", name, deleted)
			}
			list = append(list, name+" "+about)
		}
	}
	if len(list) < nodes+2 {
		t.Fatalf("only %v", list)
	}
	return list
}

// reinstalled: a release that comes back on its volumes is the same cluster.
func reinstalled(t *testing.T, r *run) {
	before := r.identities(t)
	r.load.mark("uninstalled")
	was := r.load.seen(t)
	r.helm(t, "uninstall", "quorate", "--namespace", namespace)
	eventually(t, "all of the release to be gone", func() string {
		list, err := r.pods("node")
		if err != nil || len(list) > 0 {
			return fmt.Sprintf("%d pods are left (%v)", len(list), err)
		}
		return ""
	})
	eventually(t, "callers to be told that nobody decides", func() string {
		if is := r.load.seen(t); is.Unavailable+is.Unknown < was.Unavailable+was.Unknown+50 {
			return fmt.Sprintf("%+v", is)
		}
		return ""
	})
	if a := r.check(t, r.load.askers[0], untouched); a.Status != 503 {
		t.Errorf("without nodes a check is answered with status %d: %+v", a.Status, a.Answer)
	}
	r.helm(t, "install", "quorate", chart, "--namespace", namespace)
	r.whole(t)
	if after := r.identities(t); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Errorf("before\n%s\nafter\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	r.programmed(t, "load")
	r.stillSpent(t)
	r.load.goesOn(t)
}

// git runs git, also in a checkout that another user owns.
func git(args ...string) *exec.Cmd {
	return exec.Command("git", append([]string{"-c", "safe.directory=*", "-C", root}, args...)...)
}

// noPrevious is what PREVIOUS says where nothing came before.
const noPrevious = "none"

// previous is the commit that an upgrade comes from.
func previous(t *testing.T) string {
	t.Helper()
	name := os.Getenv("PREVIOUS")
	if name == "" {
		name = "HEAD^"
	}
	out, err := git("rev-parse", "--verify", "--quiet", name+"^{commit}").CombinedOutput()
	if err != nil {
		t.Fatalf("the step %s needs the commit %s, which this clone doesn't have: git fetch --deepen=1 brings the one before HEAD; "+
			"PREVIOUS=commit names another (%v: %s)", lastStep, name, err, out)
	}
	return strings.TrimSpace(string(out))
}

// checkOut lays a commit's files into a new folder.
func checkOut(t *testing.T, commit string) string {
	t.Helper()
	dir, files := t.TempDir(), filepath.Join(t.TempDir(), "files.tar")
	for _, cmd := range []*exec.Cmd{git("archive", "-o", files, commit), exec.Command("tar", "-x", "-C", dir, "-f", files)} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return dir
}

// installPrevious founds a cluster with the chart and the image of a commit, and lets applications ask through its gateways.
func (r *run) installPrevious(t *testing.T, commit string) {
	t.Helper()
	dir := checkOut(t, commit)
	if out, err := exec.Command("make", "-C", dir, "programs").CombinedOutput(); err != nil {
		t.Fatalf("the programs of commit %s: %v\n%s", commit, err, out)
	}
	r.clear(t)
	tar := filepath.Join(t.TempDir(), "previous.tar")
	r.pack(t, tar, previousImage, dir+"/dist/programs")
	r.script(t, "load-image.sh", tar)
	r.newNamespace(t)
	r.helm(t, "install", "quorate", dir+"/charts/quorate", "--namespace", namespace, "--set", "image.tag=previous")
	r.whole(t)
	r.load = &load{kubernetes: r.kubernetes}
	r.installApp(t, dir+"/charts/quorate", previousImage)
	r.apply(t, budget("budget", 2, ""))
	r.programmed(t, "budget")
	for range 2 {
		r.decided(t, r.load.askers[0], spent)
	}
	beginLoad(t, r)
	r.stillSpent(t)
}

const previousImage = "quorate:previous"

// allRun waits until every node runs an image, and all is well.
func (r *run) allRun(t *testing.T, image string) {
	t.Helper()
	r.kubectl(t, "rollout", "status", "--namespace", namespace, "statefulset/quorate", "--timeout", (2 * patience).String())
	r.whole(t)
	for name := range r.quorateNodes(t) {
		if is := r.imageOf(t, name); is != image {
			t.Errorf("%s runs %s, want %s", name, is, image)
		}
	}
	r.programmed(t, "budget")
	r.stillSpent(t)
	r.load.goesOn(t)
}

func (r *run) imageOf(t *testing.T, node string) string {
	t.Helper()
	return r.kubectl(t, "get", "pod", node, "--namespace", namespace, "-o", "jsonpath={.spec.containers[0].image}")
}

// upgraded: from the chart and the image of the commit before, on a cluster that these founded, while callers ask
// through gateways that aren't upgraded. In the middle of it, once a node of the new version leads those of the old one, it
// goes back, and then all the way.
func upgraded(t *testing.T, r *run) {
	if os.Getenv("PREVIOUS") == noPrevious {
		t.Skip("there is nothing here to upgrade from")
	}
	commit := previous(t)
	r.installPrevious(t, commit)
	upgrade := func() {
		r.helm(t, "upgrade", "quorate", chart, "--namespace", namespace, "--reset-values")
	}
	now := "quorate:" + appVersion(t, chart)
	r.load.mark("upgraded in part")
	upgrade()
	eventually(t, "a node of the new version to lead nodes of the old one", func() string {
		leaders, images := r.leaders(), map[string]string{}
		for name := range r.quorateNodes(t) {
			images[name], _ = r.try("get", "pod", name, "--namespace", namespace, "-o", "jsonpath={.spec.containers[0].image}")
		}
		for _, name := range leaders {
			if images[name] == now && slices.Contains(slices.Collect(maps.Values(images)), previousImage) {
				return ""
			}
		}
		return fmt.Sprintf("leaders %v, images %v", leaders, images)
	})
	r.load.goesOn(t)
	r.load.mark("rolled back")
	r.helm(t, "rollback", "quorate", "--namespace", namespace)
	r.allRun(t, previousImage)
	r.load.mark("upgraded")
	upgrade()
	r.allRun(t, now)
	judge(t, r)
}

// imageBuiltElsewhere: the same sources give the same image, whoever builds it, and its programs need nothing around
// them.
func imageBuiltElsewhere(t *testing.T, r *run) {
	files, err := git("ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	copying := exec.Command("bash", "-euc", fmt.Sprintf("set -o pipefail; tar -c -C %s --ignore-failed-read --null -T - | tar -x -C %s", root, dir))
	copying.Stdin = strings.NewReader(string(files))
	if out, err := copying.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("make", "-C", dir, "image", "IMAGE=localhost/quorate:again").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	here := r.pack(t, filepath.Join(t.TempDir(), "here.tar"), "localhost/quorate:again", root+"/dist/programs")
	there := readImage(t, dir+"/dist/quorate.tar")
	if here.Digest != there.Digest {
		t.Errorf("built twice, the image is %s and %s", here.Digest, there.Digest)
	}
	for _, name := range []string{"quotanode", "gateway", "operator", "quotactl"} {
		static(t, name, here.Files[name].Data)
	}
}
