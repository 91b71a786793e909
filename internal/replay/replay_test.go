package replay_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/replay"
	"github.com/quorate/quorate/internal/replay/accesslog"
)

const second = int64(1e9)

// rolling is a policy of one rolling window.
func rolling(amount uint64, window int64, key ...string) policy.Policy {
	return policy.Policy{
		Name: strings.Join(key, "-"), Domain: "d", Key: key,
		Limits: []policy.Limit{{Name: "l", Algorithm: limit.RollingWindow, Amount: amount, Window: window}},
	}
}

func set(policies ...policy.Policy) policy.Set {
	s := policy.Set{Policies: policies}
	s.Normalize()
	return s
}

// requiring is a set in whose domain rows without the names are bad.
func requiring(s policy.Set, names ...string) policy.Set {
	s.Domains = []policy.Domain{{Name: "d", Required: names}}
	s.Normalize()
	return s
}

// text is a source that can be read again.
func text(name, content string) replay.Source {
	return replay.Source{Name: name, Again: true, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(content)), nil
	}}
}

// pipe is a source that can't.
func pipe(name, content string) replay.Source {
	s := text(name, content)
	s.Again = false
	return s
}

// outcome is what a test looks at of a replay.
type outcome struct {
	*replay.Summary
	decisions []replay.Decision
	faults    []accesslog.Fault
	failed    error

	read, sorted int64 // as the progress heard
}

func run(t *testing.T, cfg replay.Config, sources ...replay.Source) outcome {
	t.Helper()
	var o outcome
	if cfg.Memory == 0 {
		cfg.Memory = 64 << 20
	}
	if cfg.Prefix == 0 {
		cfg.Prefix = 128
	}
	cfg.Domain, cfg.TempDir = "d", t.TempDir()
	if cfg.Top == 0 {
		cfg.Top = 10
	}
	cfg.Read = func(lines int64) { o.read = max(o.read, lines) }
	cfg.Sorted = func(decided, rows int64) {
		if decided <= o.sorted || decided > rows {
			t.Errorf("%d of %d rows decided after %d", decided, rows, o.sorted)
		}
		o.sorted = decided
	}
	cfg.Fault = func(_ int, f accesslog.Fault) { o.faults = append(o.faults, f) }
	cfg.Decided = func(d *replay.Decision) error { o.decisions = append(o.decisions, *d); return nil }
	o.Summary, o.failed = replay.Run(context.Background(), cfg, sources)
	if o.Summary == nil {
		t.Fatalf("replay: %v", o.failed)
	}
	if o.Lines != o.Requests+o.Bad+o.Blank+o.Header || o.Requests != o.Allowed+o.Denied {
		t.Errorf("the numbers don't add up: %+v", o.Summary)
	}
	return o
}

// words are the decisions in order, "line+" or "line-".
func (o outcome) words() string {
	var all []string
	for _, d := range o.decisions {
		sign := "-"
		if d.Allowed {
			sign = "+"
		}
		all = append(all, strconv.FormatInt(d.Line, 10)+sign)
	}
	return strings.Join(all, " ")
}

// The worked example of the README, as a log: three per minute, at 0, 10, 20, 50 and 60 seconds.
func TestReplayDecidesAtTheTimesOfTheRows(t *testing.T) {
	log := "time,user\n0,u\n10,u\n20,u\n50,u\n60,u\n60,other\n"
	o := run(t, replay.Config{Set: set(rolling(3, 60*second, "user"))}, text("log", log))
	if got, want := o.words(), "2+ 3+ 4+ 5- 6+ 7+"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	d := o.decisions[3]
	if d.RetryAfter != 10 || d.Remaining != 0 || d.Limit != 3 || d.LimitName != "l" || d.Key != "u" || d.Time != 50*second {
		t.Errorf("the denial is %+v", d)
	}
}

func TestCSV11EqualTimesAndIdenticalRowsAreSeparateEvents(t *testing.T) {
	o := run(t, replay.Config{Set: set(rolling(3, 60*second, "user"))}, text("log", "time,user\n"+strings.Repeat("0,k\n", 5)))
	if o.Allowed != 3 || o.Denied != 2 || o.words() != "2+ 3+ 4+ 5- 6-" {
		t.Errorf("got %s", o.words())
	}
}

// Offsets count before rows are put in order.
func TestTZ07OffsetsAreAppliedBeforeSorting(t *testing.T) {
	log := `192.0.2.1 - - [07/Dec/2016:11:05:07 +0100] "GET / HTTP/1.1" 200 1
192.0.2.1 - - [07/Dec/2016:10:05:06 +0000] "GET / HTTP/1.1" 200 1
192.0.2.1 - - [07/Dec/2016:10:05:08 +0000] "GET / HTTP/1.1" 200 1
`
	o := run(t, replay.Config{Set: set(rolling(1, second, "ip"))}, text("log", log))
	if got, want := o.words(), "2+ 1+ 3+"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Windows live on the epoch: no hour repeats or vanishes when summer time ends.
func TestTZ01TheEndOfSummerTimeIsNoHourMore(t *testing.T) {
	log := "time,ip,host\n2021-10-31T02:59:59+02:00,203.0.113.9,a.example\n2021-10-31T02:00:01+01:00,203.0.113.9,a.example\n"
	for algorithm, want := range map[limit.Algorithm]string{limit.FixedWindow: "2+ 3+", limit.RollingWindow: "2+ 3-"} {
		p := rolling(1, 3600*second, "ip", "host")
		p.Limits[0].Algorithm = algorithm
		o := run(t, replay.Config{Set: set(p)}, text("log", log))
		if o.words() != want || o.From != 1635641999*second || o.To != 1635642001*second {
			t.Errorf("%v: got %s from %d to %d, want %s", algorithm, o.words(), o.From, o.To, want)
		}
	}
}

// One client, however its address is written; a network of IPv6 is one client where asked.
func TestKEY03KEY04KEY05KEY14OneClientHasOneAllowance(t *testing.T) {
	for _, tc := range []struct {
		prefix  int
		clients []string // each a list of spellings of one
	}{
		{128, []string{
			"192.0.2.1 ::ffff:192.0.2.1 ::FFFF:C000:0201 192.0.2.1:5678",
			"2001:db8::1 [2001:db8::1]:5678 [2001:db8::1] 2001:db8::1%eth0 2001:0db8:0000::0:1",
			"2001:0db8:10ff:f00f:0000:0000:0:8000 2001:db8:10ff:f00f::8000", "::1", "10.0.0.1",
		}},
		{64, []string{"2001:db8:1:2::1 2001:db8:1:2:ffff::9", "2001:db8:1:3::1", "192.0.2.1", "192.0.2.2"}},
	} {
		log := "time,ip\n"
		for _, spellings := range tc.clients {
			for _, ip := range strings.Fields(spellings) {
				log += "0," + ip + "\n"
			}
		}
		o := run(t, replay.Config{Set: set(rolling(1, 60*second, "ip")), Prefix: tc.prefix}, text("log", log))
		if int(o.Allowed) != len(tc.clients) || o.Bad > 0 {
			t.Errorf("/%d: %d allowed of %d clients, %d bad: %s", tc.prefix, o.Allowed, len(tc.clients), o.Bad, o.words())
		}
	}
}

func TestKEY07CSV14OneHostHasOneAllowance(t *testing.T) {
	log := "time,host\n0,Example.COM\n0,example.com\n0,example.com.\n0,example.com:443\n0,EXAMPLE.COM:80\n0,192.0.2.3:80\n0,[2001:db8::3]:443\n0,bücher.example\n0,xn--bcher-kva.example\n"
	o := run(t, replay.Config{Set: set(rolling(1, 60*second, "host"))}, text("log", log))
	if got, want := o.words(), "2+ 3- 4- 5- 6- 7+ 8+ 9+ 10-"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Rows without an address are told, counted, and lumped together nowhere.
func TestKEY11KEY14CSV06NoAddressIsNoKey(t *testing.T) {
	log := "time,ip\n0,\n0,-\n0,unknown\n0,010.0.0.1\n0,10.0.0.1\n0,client.example\n0,unix:\n0,\"localhost, localhost\"\n"
	s := requiring(set(rolling(1, 60*second, "ip")), "ip")
	o := run(t, replay.Config{Set: s}, text("log", log))
	if o.Requests != 1 || o.Bad != 7 || !slices.Equal(o.BadBy, []replay.Count{{Name: "no ip", N: 7}}) {
		t.Errorf("%d requests, %d bad: %v", o.Requests, o.Bad, o.BadBy)
	}
	for i, f := range o.faults {
		if want := []int64{2, 3, 4, 5, 7, 8, 9}[i]; f.Line != want {
			t.Errorf("fault %d is of line %d, want %d", i, f.Line, want)
		}
	}
}

// The caller chooses what stands left in a forwarded list: hops are counted from the right.
func TestHDR01CSV05CSV17TheClientIsCountedFromTheRight(t *testing.T) {
	combined := func(peer, list string) string {
		return peer + ` - - [07/Dec/2016:10:05:06 +0000] "GET / HTTP/1.1" 200 1 "-" "agent" "` + list + "\"\n"
	}
	log := combined("10.0.0.1", "192.0.2.1, 203.0.113.9") + combined("10.0.0.1", "192.0.2.2, 203.0.113.9") +
		combined("10.0.0.1", "198.51.100.5") + combined("203.0.113.9", "-")
	for trusted, want := range []string{
		"10.0.0.1 10.0.0.1 10.0.0.1 203.0.113.9", // the peer
		"203.0.113.9 203.0.113.9 198.51.100.5 203.0.113.9",
	} {
		o := run(t, replay.Config{Set: set(rolling(9, 60*second, "ip")), Trusted: trusted}, text("log", log))
		var keys []string
		for _, d := range o.decisions {
			keys = append(keys, d.Key)
		}
		if got := strings.Join(keys, " "); got != want {
			t.Errorf("%d trusted: got %s, want %s", trusted, got, want)
		}
	}
	list := "time,ip\n1,\"203.0.113.9, 198.51.100.7, 10.0.0.1\"\n" // a list in the address's own column
	for trusted, want := range []string{"10.0.0.1", "198.51.100.7", "203.0.113.9"} {
		if o := run(t, replay.Config{Set: set(rolling(9, 60*second, "ip")), Trusted: trusted}, text("log", list)); o.decisions[0].Key != want {
			t.Errorf("%d trusted: got %s, want %s", trusted, o.decisions[0].Key, want)
		}
	}
}

// Keys of several entries never run together, and people can tell which is which.
func TestKeysOfSeveralEntriesAreNamed(t *testing.T) {
	log := "time,a,b\n0,x,\"y,b=z\"\n0,\"x,b=y\",z\n0,\"say \"\"hi\"\"\",z\n"
	o := run(t, replay.Config{Set: set(rolling(1, 60*second, "b", "a"))}, text("log", log))
	var keys []string
	for _, d := range o.decisions {
		keys = append(keys, d.Key)
	}
	want := []string{`a=x,b="y,b=z"`, `a="x,b=y",b=z`, `a="say \"hi\"",b=z`}
	if !slices.Equal(keys, want) || o.Allowed != 3 {
		t.Errorf("got %q, want %q", keys, want)
	}
}

func TestCostsAreWholeNumbersFromOne(t *testing.T) {
	log := "time,user,cost\n0,u,2\n0,u,0\n0,u,-1\n0,u,1.5\n0,u,\n0,u,2\n0,u,1\n"
	o := run(t, replay.Config{Set: set(rolling(3, 60*second, "user")), CostColumn: "cost"}, text("log", log))
	if got, want := o.words(), "2+ 7- 8+"; got != want || o.Bad != 4 {
		t.Errorf("got %s and %d bad, want %s and 4", got, o.Bad, want)
	}
}

// A Shadow policy is decided as if enforced, by usage of its own, and what it alone denies is marked.
func TestShadowPoliciesAreReportedAsTheyWouldDecide(t *testing.T) {
	tight := rolling(1, 60*second, "user")
	tight.Name, tight.Mode, tight.OnUnavailable, tight.AllowAdjust = "tight", policy.Shadow, policy.Allow, true
	log := "time,user\n" + strings.Repeat("0,u\n", 5)
	o := run(t, replay.Config{Set: set(rolling(3, 60*second, "user"), tight)}, text("log", log))
	if o.Denied != 4 || o.ShadowDenied != 2 || o.words() != "2+ 3- 4- 5- 6-" || !o.decisions[1].Shadow || o.decisions[4].Shadow {
		t.Errorf("%d denied, %d by Shadow alone: %s", o.Denied, o.ShadowDenied, o.words())
	}
	want := []replay.PolicySummary{
		{Namespace: "default", Name: "user", Requests: 5, Denied: 2},
		{Namespace: "default", Name: "tight", Shadow: true, Requests: 5, Denied: 4},
	}
	if !slices.Equal(o.Policies, want) {
		t.Errorf("got %+v", o.Policies)
	}
	top := []replay.Offender{
		{Key: "u", Policy: "default/tight", Requests: 5, Denied: 4}, {Key: "u", Policy: "default/user", Requests: 5, Denied: 2},
	}
	if !slices.Equal(o.Top, top) {
		t.Errorf("top: %+v", o.Top)
	}
	alone := run(t, replay.Config{Set: set(tight)}, text("log", log))
	if alone.Denied != 4 || alone.ShadowDenied != 4 || alone.Unmatched != 0 {
		t.Errorf("alone: %+v", alone.Summary)
	}
}

func TestWhatNoPolicyMatchesIsAsTheDomainSays(t *testing.T) {
	log := "time,user,op\n0,u,search\n0,u,\n"
	p := rolling(5, 60*second, "user")
	p.Match = []keyspace.Entry{{Name: "op", Value: "search"}}
	for _, allow := range []bool{false, true} {
		s := set(p)
		s.Domains = []policy.Domain{{Name: "d", OnNoMatchAllow: allow}}
		o := run(t, replay.Config{Set: s}, text("log", log))
		if o.Unmatched != 1 || o.decisions[1].Allowed != allow || o.decisions[1].Policy != "" {
			t.Errorf("allow %v: %+v", allow, o.decisions[1])
		}
	}
}

func TestTwoSetsAreCompared(t *testing.T) {
	log := "time,user\n" + strings.Repeat("0,u\n", 5) + "0,v\n"
	looser := set(rolling(4, 60*second, "user"))
	o := run(t, replay.Config{Set: set(rolling(3, 60*second, "user")), Against: &looser}, text("log", log))
	c := o.Against
	if c.Allowed != 5 || c.Denied != 1 || c.NewlyDenied != 1 || c.NewlyAllowed != 0 {
		t.Errorf("got %+v", c)
	}
	if len(c.Top) != 1 || c.Top[0].Key != "u" || c.Top[0].Denied != 1 {
		t.Errorf("newly denied: %+v", c.Top)
	}
}

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

// Values longer than a descriptor may hold are bad rows, never shortened keys.
func TestAValueThatIsTooLongIsNoKey(t *testing.T) {
	for n, bad := range map[int]int64{126: 0, 127: 0, 128: 0, keyspace.MaxValueLen: 0, keyspace.MaxValueLen + 1: 1} {
		log := "time,user\n0," + strings.Repeat("x", n) + "\n"
		o := run(t, replay.Config{Set: set(rolling(1, 60*second, "user"))}, text("log", log))
		if o.Bad != bad || bad == 0 && len(o.decisions[0].Key) != n {
			t.Errorf("%d bytes: %d bad", n, o.Bad)
		}
	}
}

// A series has slices of one length, and all requests in them, however long the trace is.
func TestTheSeriesHoldsEveryRequest(t *testing.T) {
	for _, length := range []int64{0, 10, 239, 240, 10_000, 1e6, 1e9} {
		rng := rand.New(rand.NewPCG(7, uint64(length)))
		log := "time,user\n"
		for range 300 {
			log += strconv.FormatInt(1e9+rng.Int64N(length+1), 10) + ",u\n"
		}
		o := run(t, replay.Config{Set: set(rolling(3, 5*second, "user"))}, text("log", log))
		s := o.Series
		var allowed, denied int64
		for i := range s.Allowed {
			allowed, denied = allowed+s.Allowed[i], denied+s.Denied[i]
		}
		if allowed != o.Allowed || denied != o.Denied || len(s.Allowed) > 241 || s.Start > o.From || s.Start+int64(len(s.Allowed))*s.Step <= o.To {
			t.Errorf("over %d s: %d slices of %d ns hold %d and %d of %d and %d", length, len(s.Allowed), s.Step, allowed, denied, o.Allowed, o.Denied)
		}
	}
}

// Two contracts, one trace: a bucket whose burst is its rate lets through nearly twice what a window of the
// same numbers does.
func TestWIN06BucketAndRollingDifferOnOneTrace(t *testing.T) {
	log := "time,user\n"
	for n := range 30 {
		log += fmt.Sprintf("%d,k\n%d.25,k\n", n, n)
	}
	bucket := rolling(17, 30*second, "user")
	bucket.Limits[0].Algorithm, bucket.Limits[0].Refill = limit.TokenBucket, 17
	for want, p := range map[int64]policy.Policy{17: rolling(17, 30*second, "user"), 33: bucket} {
		if o := run(t, replay.Config{Set: set(p)}, text("log", log)); o.Allowed != want || o.Requests != 60 {
			t.Errorf("%d of %d allowed, want %d", o.Allowed, o.Requests, want)
		}
	}
}

// A column is found whatever its case, and then its values are in normal form.
func TestTheNormalFormGoesWithTheColumnWhateverItsCase(t *testing.T) {
	for _, name := range []string{"ip", "IP", "Ip"} {
		log := "time,ip\n0,192.0.2.1:1000\n0,192.0.2.1:1001\n"
		p := rolling(1, 60*second, name)
		p.Name = "p"
		if o := run(t, replay.Config{Set: set(p)}, text("log", log)); o.words() != "2+ 3-" {
			t.Errorf("%s: %s", name, o.words())
		}
	}
}

// No time comes after the last one, so that no window can be counted from it.
func TestTheLastInstantIsABadRow(t *testing.T) {
	log := "time,user\n9223372036854775806,u\n9223372036854775807,u\n"
	for algorithm := range 2 {
		p := rolling(1, 60*second, "user")
		if algorithm == 1 {
			p.Limits[0].Algorithm, p.Limits[0].Refill = limit.TokenBucket, 1
		}
		if o := run(t, replay.Config{Set: set(p)}, text("log", log)); o.words() != "2+" || o.Bad != 1 {
			t.Errorf("%s, %d bad", o.words(), o.Bad)
		}
	}
}

// Policies may look at more entries together than one descriptor could have: each looks at its own.
func TestManyPoliciesMayLookAtManyColumns(t *testing.T) {
	var policies []policy.Policy
	header, row := "time,user", "0,u"
	for i := range 40 {
		p := rolling(1, 60*second, "user")
		p.Name = fmt.Sprintf("p%d", i)
		p.Match = []keyspace.Entry{{Name: fmt.Sprintf("c%d", i), Value: "x"}}
		policies = append(policies, p)
		header += fmt.Sprintf(",c%d", i)
		row += map[bool]string{true: ",x", false: ","}[i == 39]
	}
	o := run(t, replay.Config{Set: set(policies...)}, text("log", header+"\n"+row+"\n"+row+"\n"))
	if o.words() != "2+ 3-" || o.decisions[1].Policy != "default/p39" {
		t.Errorf("%s, %+v", o.words(), o.decisions)
	}
}
