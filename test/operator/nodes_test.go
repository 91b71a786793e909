package operator_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	quorate "github.com/quorate/quorate/internal/policy"
)

func sorted(names []string) string {
	slices.Sort(names)
	return strings.Join(names, " ")
}

// set is the newest set that a node tells of, which is empty at first.
func (w *world) set() quorate.Set {
	w.t.Helper()
	admin, err := client.NewAdmin(w.nodes.Addresses(), w.nodes.TLS(w.t, "reader"))
	w.must(err)
	defer admin.Close()
	var text []byte
	var version *quotav1.SetVersion
	eventually(w.t, "a node to tell of its policies", func() bool {
		ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
		defer cancel()
		text, version, _, err = admin.Policies(ctx, nil)
		return err == nil
	})
	if version == nil {
		return quorate.Set{}
	}
	set, err := quorate.ParseCanonical(text)
	w.must(err)
	return set
}

// decisions asks for admissions in a domain, one after the other, for a user of its own.
func (w *world) decisions(c *client.Client, domain, user string, n int) (list string) {
	w.t.Helper()
	for range n {
		ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
		a, err := c.Check(ctx, &quotav1.CheckRequest{
			Domain: domain, Cost: 1, Descriptors: []*quotav1.Descriptor{{Entries: []*quotav1.Entry{{Name: "user", Value: []byte(user)}}}},
		})
		cancel()
		w.must(err)
		list += strings.TrimPrefix(a.GetDecision().String(), "DECISION_") + " "
	}
	return strings.TrimSpace(list)
}

// address is where the operator serves its metrics or its health.
func (w *world) address(what string) string {
	w.t.Helper()
	return strings.TrimSpace(w.operator.Line(w.t, what+" "))
}

// metric is the value of a series of the operator's, 0 if there is none.
func (w *world) metric(series string) (value float64) {
	w.t.Helper()
	response, err := http.Get("http://" + w.address("metrics") + "/metrics")
	w.must(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	w.must(err)
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, series+" "); found {
			_, err := fmt.Sscan(rest, &value)
			w.must(err)
		}
	}
	return value
}

// resyncs waits until the operator has gone through so many more reconciles.
func (w *world) resyncs(n float64) {
	w.t.Helper()
	const series = `controller_runtime_reconcile_total{controller="policies",result="requeue_after"}`
	first := w.metric(series)
	eventually(w.t, "more reconciles", func() bool { return w.metric(series) >= first+n })
}
