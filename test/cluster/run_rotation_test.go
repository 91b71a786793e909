package cluster_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/test/rig"
)

// TestCertificatesRotateUnderLoad: first everybody believes a new CA as well, then shows a certificate of it, then
// stops believing the old one. Checks go on all the while. Links stay up as long as what they were opened with is
// believed; in the end whoever shows the old CA's certificate is refused, on an old connection too.
func TestCertificatesRotateUnderLoad(t *testing.T) {
	t.Parallel()
	n := found(t, rig.Shape{Policies: hourlyText(100), LogLevel: "info"})
	r := newRotation(t, n)
	l := newLedger(100)
	l.pace *= 4
	d := l.drive(t, r.client, r.gateway.Line(t, "http "))
	l.awaitAllows(t, 100)
	rig.Eventually(t, "all links", func() bool { return n.sum(t, "quorate_link_up") == float64(len(names)*(len(names)-1)) })
	links := n.sum(t, "quorate_link_connects_total")

	r.put(t, "ca.crt", r.read(t, n.Certs, "ca.crt")+r.read(t, r.fresh, "ca.crt"))
	r.taken(t)
	l.awaitAllows(t, 50)
	for _, role := range append([]string{"gateway", "reader", "policy-writer"}, names...) {
		for _, file := range []string{role + ".key", role + ".crt"} {
			r.put(t, file, r.read(t, r.fresh, file))
		}
	}
	r.taken(t)
	l.awaitAllows(t, 50)
	if now := n.sum(t, "quorate_link_connects_total"); now != links {
		t.Errorf("links came up %v times, and %v before the certificates were others", now, links)
	}
	if a := r.askAsBefore(t); a == nil {
		t.Error("a certificate of the old CA is refused although it is believed")
	}
	r.put(t, "ca.crt", r.read(t, r.fresh, "ca.crt"))
	r.taken(t)
	r.verifyRefusal(t)
	l.awaitAllows(t, 100)
	rig.Eventually(t, "a whole cluster", func() bool {
		status, _ := n.Ctl(t, "reader", "status")
		return status == 0 && n.sum(t, "quorate_link_up") == float64(len(names)*(len(names)-1))
	})
	d.end()
	l.verify(t, n, r.client)
}

// rotation is who shows certificates while they are replaced.
type rotation struct {
	*nodes
	fresh   string // folder of the new CA's
	stale   access.Files
	gateway *rig.Process
	keeper  *access.Keeper
	client  *client.Client // with what the keeper has
	before  *client.Client // with the first certificate for ever
	rounds  int
}

func newRotation(t *testing.T, n *nodes) *rotation {
	t.Helper()
	r := &rotation{nodes: n, fresh: filepath.Join(n.Dir, "fresh"), gateway: n.Gateway(t, "--log-level", "info")}
	programs.Issue(t, r.fresh, "--days", "30")
	stale := filepath.Join(n.Dir, "stale")
	if err := os.Mkdir(stale, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"gateway.crt", "gateway.key"} {
		rig.Write(t, filepath.Join(stale, file), r.read(t, n.Certs, file))
	}
	rig.Write(t, filepath.Join(stale, "ca.crt"), r.read(t, n.Certs, "ca.crt")+r.read(t, r.fresh, "ca.crt"))
	r.stale = rig.FilesIn(stale, "gateway")
	var err error
	if r.keeper, err = access.Open(n.Files("gateway"), time.Now); err != nil {
		t.Fatal(err)
	}
	r.client = rig.Dialed(t, client.Config{Addresses: n.Addresses(), TLS: r.keeper.ClientTLS(access.IsPeer)})
	r.before = rig.Dialed(t, client.Config{Addresses: n.Addresses(), TLS: rig.Dialing(t, r.stale)})
	if a := r.askAsBefore(t); a == nil {
		t.Fatal("the first certificate is refused from the first")
	}
	return r
}

func (r *rotation) read(t *testing.T, folder, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// put replaces one of the files in use, such that nobody ever reads half of it.
func (r *rotation) put(t *testing.T, file, text string) {
	t.Helper()
	path := filepath.Join(r.Certs, file)
	rig.Write(t, path+".new", text)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// taken waits until all have taken what was put last.
func (r *rotation) taken(t *testing.T) {
	t.Helper()
	r.rounds++
	if changed, err := r.keeper.Reload(); !changed || err != nil {
		t.Fatalf("changed: %v, %v", changed, err)
	}
	rig.Eventually(t, "the processes to take other certificates", func() bool {
		for _, name := range names {
			if strings.Count(r.Process[name].Stderr.String(), "other certificates are in force") < r.rounds {
				return false
			}
		}
		return strings.Count(r.gateway.Stderr.String(), "certificates replaced") >= r.rounds
	})
}

// askAsBefore asks with the first certificate; nil: there was no answer.
func (r *rotation) askAsBefore(t *testing.T) *quotav1.Answer {
	ctx, cancel := context.WithTimeout(t.Context(), 2*askWithin)
	defer cancel()
	a, err := r.before.Check(ctx, &quotav1.CheckRequest{Domain: domain, Descriptors: []*quotav1.Descriptor{descriptorOf("somebody")}})
	if err != nil {
		return nil
	}
	return a
}

// verifyRefusal: nobody believes the old CA any more.
func (r *rotation) verifyRefusal(t *testing.T) {
	t.Helper()
	for _, name := range names {
		if err := insist(t, r.GRPC[name], r.stale); err == nil || !strings.Contains(err.Error(), "unknown certificate authority") {
			t.Errorf("%s hears of the old CA: %v", name, err)
		}
	}
	// Nodes look at old connections again within a minute.
	for end := time.Now().Add(2 * rig.Patience); r.askAsBefore(t) != nil; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("old connections are not refused")
		}
	}
	if a := r.askAsBefore(t); a != nil {
		t.Errorf("the old CA's certificate got an answer: %v", a)
	}
}

// sum adds up a metric of all nodes and labels.
func (n *nodes) sum(t *testing.T, metric string) (sum float64) {
	t.Helper()
	for _, name := range names {
		response, err := http.Get("http://" + n.Process[name].Line(t, "health ") + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		for s := bufio.NewScanner(response.Body); s.Scan(); {
			if rest, ok := strings.CutPrefix(s.Text(), metric+"{"); ok {
				value, err := strconv.ParseFloat(rest[strings.LastIndex(rest, " ")+1:], 64)
				if err != nil {
					t.Fatal(fmt.Errorf("%s: %w", s.Text(), err))
				}
				sum += value
			}
		}
		response.Body.Close()
	}
	return sum
}
