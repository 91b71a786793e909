package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/server"
)

const second = int64(1_000_000_000)

var conversions = &policy.Policy{
	Name: "conversions", Namespace: "media",
	Limits: []policy.Limit{{Name: "per-minute", Algorithm: limit.RollingWindow, Amount: 3, Window: 60 * second}},
}

// decider gives every check one outcome, and keeps the last request.
type decider struct {
	outcome    partition.Outcome
	inspection partition.Inspection
	asked      partition.Request
}

func (d *decider) Submit(calls ...*partition.Call) {
	for _, c := range calls {
		d.asked = c.Request
		c.Outcome = d.outcome
		c.Done(c)
	}
}

func (d *decider) Inspect(domain string, descriptor keyspace.Descriptor) partition.Inspection {
	d.asked = partition.Request{Domain: domain, Descriptors: []keyspace.Descriptor{descriptor}}
	return d.inspection
}

// serve serves d on this machine and returns its gRPC address.
func serve(t *testing.T, d *decider) string {
	t.Helper()
	s := server.New(server.Config{
		Decider: d, Domains: func() []string { return []string{"video-api"} }, Monotonic: func() int64 { return 0 },
		Ready: func() (bool, string) { return true, "" }, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	})
	var l server.Listeners
	for _, one := range []*net.Listener{&l.GRPC, &l.Ops} {
		var err error
		if *one, err = server.Listen("address", ":0", false); err != nil {
			t.Fatal(err)
		}
	}
	s.Start(l)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return l.GRPC.Addr().String()
}

func quotactl(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = run(t.Context(), args, &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

func outcome(r partition.Result) partition.Outcome {
	o := partition.Outcome{Result: r, Time: 100 * second, Partition: 7, Epoch: 2}
	o.Answer = fsm.Answer{Time: 100 * second, Amount: 3, At: limit.Never, FullAt: 150 * second}
	switch r {
	case partition.Allowed:
		o.Policy, o.Answer.Remaining = conversions, 2
	case partition.Denied:
		o.Policy, o.Answer.At = conversions, 130*second
	}
	return o
}

const id = "00112233445566778899aabbccddeeff"

// TestCheckShowsTheAnswerAndEndsWithIt: 0 allowed, 3 denied, 1 neither.
func TestCheckShowsTheAnswerAndEndsWithIt(t *testing.T) {
	var d decider
	address := serve(t, &d)
	for r, want := range map[partition.Result]struct {
		status int
		out    string
	}{
		partition.Allowed: {command.OK, "decision   allow\npolicy     media/conversions\nlimit      per-minute, 3 per 1m0s\n" +
			"remaining  2\nfull in    50s\nid         " + id + "\n"},
		partition.Denied: {exitDenied, "decision   deny (limit)\npolicy     media/conversions\nlimit      per-minute, 3 per 1m0s\n" +
			"remaining  0\nwait       31s\nfull in    50s\nid         " + id + "\n"},
		partition.NoPolicy:       {exitDenied, "decision   deny (no_policy)\nid         " + id + "\n"},
		partition.NoMatchAllowed: {command.OK, "decision   allow (no_match)\nid         " + id + "\n"},
		partition.NoQuorum: {command.Failure, "decision   unavailable (no_quorum)\n" +
			"message    no leader has heard a majority of the replicas lately\nwait       1s\n"},
	} {
		d.outcome = outcome(r)
		status, out, errs := quotactl(t, "check", "--server", address, "--domain", "video-api", "--cost", "2", "--id", id, "principal=u=42", "api_class=")
		if status != want.status || out != want.out || errs != "" {
			t.Errorf("result %d: status %d, %q\n%s\nwant\n%s", r, status, errs, out, want.out)
		}
		e := d.asked.Descriptors[0]
		if d.asked.Domain != "video-api" || d.asked.Cost != 2 || len(e) != 2 || e[0] != (keyspace.Entry{Name: "api_class"}) || e[1].Value != "u=42" {
			t.Errorf("asked for %+v", d.asked)
		}
	}
}

// TestCheckInJSONHasAllNames, null where nothing applies: those of the HTTP front.
func TestCheckInJSONHasAllNames(t *testing.T) {
	var d decider
	address := serve(t, &d)
	for r, want := range map[partition.Result]string{
		partition.Denied: `{"decision":"deny","reason":"limit","message":null,"policy":"media/conversions","limit":3,"limit_name":"per-minute",` +
			`"remaining":0,"retry_after":31,"decision_time_ns":100000000000,"partition":7,"epoch":2,"replayed":false,"id":"` + id + `"}`,
		partition.Memory: `{"decision":"unavailable","reason":"memory","message":"no room to remember another allow","policy":null,"limit":null,"limit_name":null,` +
			`"remaining":null,"retry_after":1,"decision_time_ns":null,"partition":null,"epoch":null,"replayed":null,"id":null}`,
	} {
		d.outcome = outcome(r)
		_, out, _ := quotactl(t, "check", "--server", address, "-o", "json", "--id", id, "a=b")
		var compact bytes.Buffer
		if err := json.Compact(&compact, []byte(out)); err != nil || compact.String() != want {
			t.Errorf("result %d:\n%s\nwant\n%s", r, compact.String(), want)
		}
	}
}

// TestInspectShowsEveryLimit, or why there is none.
func TestInspectShowsEveryLimit(t *testing.T) {
	d := decider{inspection: partition.Inspection{Outcome: outcome(partition.Allowed), Uses: []fsm.Use{
		{Spec: limit.Spec{Algorithm: limit.RollingWindow, Amount: 3, Window: 60 * second}, Used: 2, Left: 1, FullAt: 150*second + 1},
		{Spec: limit.Spec{Algorithm: limit.TokenBucket, Amount: limit.Unlimited, Window: second}, Used: 9, Left: limit.Unlimited},
		{Spec: limit.Spec{Algorithm: limit.FixedWindow, Amount: 0, Window: second}, FullAt: limit.Never},
	}}}
	address := serve(t, &d)
	want := `POLICY             LIMIT       ALGORITHM      USED  LEFT       OF         PER   FULL IN
media/conversions  per-minute  rollingWindow  2     1          3          1m0s  51s
media/conversions  per-minute  tokenBucket    9     unlimited  unlimited  1s    -
media/conversions  per-minute  fixedWindow    0     0          0          1s    never
`
	status, out, errs := quotactl(t, "inspect", "--server", address, "principal=u42")
	if status != command.OK || out != want {
		t.Errorf("status %d, %q\n%s\nwant\n%s", status, errs, out, want)
	}
	status, out, _ = quotactl(t, "inspect", "--server", address, "-o", "json", "principal=u42")
	var u usage
	if err := json.Unmarshal([]byte(out), &u); err != nil || status != command.OK || len(u.Limits) != 3 ||
		*u.Limits[0].Left != 1 || u.Limits[1].Limit != nil || u.Limits[2].FullIn != nil || *u.Limits[2].Limit != 0 {
		t.Errorf("status %d, %v, %s", status, err, out)
	}
	d.inspection = partition.Inspection{Outcome: outcome(partition.UnknownDomain)}
	if status, out, _ := quotactl(t, "inspect", "--server", address, "a=b"); status != command.OK || out != "no limit applies: every such check is denied (unknown_domain)\n" {
		t.Errorf("status %d, %q", status, out)
	}
	d.inspection = partition.Inspection{Outcome: outcome(partition.NoQuorum)}
	if status, out, errs := quotactl(t, "inspect", "--server", address, "a=b"); status != command.Failure || out != "" || !strings.Contains(errs, "majority") {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
}

// TestNobodyThereIsUnavailable, and no wrong usage.
func TestNobodyThereIsUnavailable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if status, out, _ := quotactl(t, "check", "--server", address, "a=b"); status != command.Failure || !strings.HasPrefix(out, "decision   unavailable\nmessage    Unavailable: ") {
		t.Errorf("status %d, %q", status, out)
	}
	if status, _, errs := quotactl(t, "inspect", "--server", "192.0.2.1:1", "a=b"); status != command.Failure || !strings.HasPrefix(errs, "quotactl: --server: ") {
		t.Errorf("another machine: status %d, %q", status, errs)
	}
}

// TestWrongUsageEndsWith2, and asks nobody.
func TestWrongUsageEndsWith2(t *testing.T) {
	for want, args := range map[string][]string{
		`unknown command "chekc"`:       {"chekc"},
		`"principal" is not NAME=VALUE`: {"check", "principal"},
		`"=u42" is not NAME=VALUE`:      {"inspect", "=u42"},
		`--cost 0: not above 0`:         {"check", "--cost", "0"},
		`invalid argument "-1"`:         {"check", "--cost", "-1"},
		`--id "zz": not 32 hex digits`:  {"check", "--id", "zz"},
		`--id "00": not 32 hex digits`:  {"check", "--id", "00"},
		`--output "xml": not one of`:    {"check", "-o", "xml"},
		`--timeout 0s: not above 0`:     {"inspect", "--timeout", "0s"},
		`unknown flag: --host`:          {"check", "--host", "x"},
	} {
		status, out, errs := quotactl(t, args...)
		if status != command.Usage || out != "" || !strings.HasPrefix(errs, "quotactl: "+want) {
			t.Errorf("%q: status %d, %q, %q", args, status, out, errs)
		}
	}
	if _, out, _ := quotactl(t, "check", "--help"); !strings.Contains(out, "Exit status: 0 allowed, 3 denied, 1 unavailable") {
		t.Error("the help has no exit statuses")
	}
}
