package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
			uid := r.kubectl(t, "get", "--namespace", namespace, "-o", "jsonpath={.metadata.uid}", name)
			list = append(list, name+" "+uid)
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
	if a := r.check(t, r.load.askers[0], spent); a.Status != 503 {
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

// previous is the commit that an upgrade comes from.
func previous(t *testing.T) string {
	t.Helper()
	name := os.Getenv("PREVIOUS")
	if name == "" {
		name = "HEAD^"
	}
	out, err := exec.Command("git", "-C", root, "rev-parse", "--verify", name+"^{commit}").CombinedOutput()
	if err != nil {
		t.Fatalf("the commit to upgrade from: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// checkOut lays a commit's files into a new folder.
func checkOut(t *testing.T, commit string) string {
	t.Helper()
	dir := t.TempDir()
	script := fmt.Sprintf("set -o pipefail; git -C %s archive %s | tar -x -C %s", root, commit, dir)
	if out, err := exec.Command("bash", "-euc", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// upgraded: from the chart and the image of the commit before, on a cluster that these founded, while callers ask
// through gateways that aren't upgraded.
func upgraded(t *testing.T, r *run) {
	commit := previous(t)
	dir := checkOut(t, commit)
	if out, err := exec.Command("make", "-C", dir, "programs").CombinedOutput(); err != nil {
		t.Fatalf("the programs of commit %s: %v\n%s", commit, err, out)
	}
	r.clear(t)
	tar := filepath.Join(t.TempDir(), "previous.tar")
	r.pack(t, tar, "quorate:previous", dir+"/dist/programs")
	r.script(t, "load-image.sh", tar)
	r.kubectl(t, "create", "namespace", namespace)
	r.kubectl(t, "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
	r.helm(t, "install", "quorate", dir+"/charts/quorate", "--namespace", namespace, "--set", "image.tag=previous")
	r.whole(t)
	r.load = &load{kubernetes: r.kubernetes}
	r.installApp(t, dir+"/charts/quorate", "quorate:previous")
	r.apply(t, budget("budget", 2, ""))
	r.programmed(t, "budget")
	for range 2 {
		r.decided(t, r.load.askers[0], spent)
	}
	beginLoad(t, r)
	r.stillSpent(t)
	r.load.mark("upgraded")
	before := r.quorateNodes(t)
	r.helm(t, "upgrade", "quorate", chart, "--namespace", namespace, "--reset-values")
	r.kubectl(t, "rollout", "status", "--namespace", namespace, "statefulset/quorate", "--timeout", (2 * patience).String())
	r.whole(t)
	for name, p := range r.quorateNodes(t) {
		if p.Metadata.UID == before[name].Metadata.UID {
			t.Errorf("%s is the pod of commit %s", name, commit)
		}
	}
	r.programmed(t, "budget")
	r.stillSpent(t)
	r.load.goesOn(t)
	judge(t, r)
}

// imageBuiltElsewhere: the same sources give the same image, whoever builds it, and its programs need nothing around
// them.
func imageBuiltElsewhere(t *testing.T, r *run) {
	files, err := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
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
