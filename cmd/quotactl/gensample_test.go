package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func gensample(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	c := newGensampleCommand()
	c.SetArgs(args)
	c.SetOut(&out)
	if err := c.Execute(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestGensampleGivesTheSameBytesAlways: the tutorial's outputs rest on it.
func TestGensampleGivesTheSameBytesAlways(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "064979cf3e5cabc2"},
		{[]string{"--format", "combined"}, "27f3cc81509262ed"},
	} {
		first := gensample(t, c.args...)
		sum := sha256.Sum256([]byte(first))
		if got := hex.EncodeToString(sum[:8]); got != c.want {
			t.Errorf("%q is %s, want %s", c.args, got, c.want)
		}
		if again := gensample(t, append(c.args, "--seed", "1")...); again != first {
			t.Errorf("%q differs the second time", c.args)
		}
		if other := gensample(t, append(c.args, "--seed", "2")...); other == first {
			t.Errorf("%q is the same with another seed", c.args)
		}
	}
}

// TestGensampleIsTenMinutesOfThreeKindsOfClients, in the order of their times.
func TestGensampleIsTenMinutesOfThreeKindsOfClients(t *testing.T) {
	for _, seed := range []string{"1", "2", "18446744073709551615"} {
		rows, err := csv.NewReader(strings.NewReader(gensample(t, "--seed", seed))).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(rows[0], ","); got != "ts,ip,host,method,path,status,user_agent" {
			t.Errorf("the header is %s", got)
		}
		times := map[string][]time.Time{}
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		last := start
		for _, row := range rows[1:] {
			at, err := time.Parse(time.RFC3339, row[0])
			if err != nil || at.Before(last) || !at.Before(start.Add(10*time.Minute)) {
				t.Fatalf("seed %s: %s after %s (%v)", seed, row[0], last, err)
			}
			last = at
			times[row[1]] = append(times[row[1]], at)
		}
		if len(times) != politeClients+2 {
			t.Errorf("seed %s: %d clients", seed, len(times))
		}
		for ip, at := range times {
			switch ip {
			case scraper:
				if len(at) != 6000 || at[0] != start || most(at, time.Second) != 10 {
					t.Errorf("seed %s: the scraper has %d requests, %d in a second", seed, len(at), most(at, time.Second))
				}
			case burstyClient:
				if len(at) != 250 || most(at, 2*time.Second) != 50 || most(at, time.Second) < 25 || most(at, time.Minute) != 50 {
					t.Errorf("seed %s: the bursty client has %d requests, %d in two seconds", seed, len(at), most(at, 2*time.Second))
				}
			default:
				if len(at) < 100 || len(at) > 300 || most(at, 2*time.Second) > 1 {
					t.Errorf("seed %s: the polite %s has %d requests", seed, ip, len(at))
				}
			}
		}
	}
}

// most is the largest number of times in a half-open interval of that length.
func most(times []time.Time, length time.Duration) (n int) {
	for i := range times {
		for j := i; j < len(times) && times[j].Sub(times[i]) < length; j++ {
			n = max(n, j-i+1)
		}
	}
	return n
}

// TestGensampleNamesNobody: addresses come from the ranges kept for documentation (RFC 5737, RFC 3849).
func TestGensampleNamesNobody(t *testing.T) {
	ranges := []netip.Prefix{
		netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24"),
		netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/32"),
	}
	six := false
	for _, q := range sample(1) {
		ip, err := netip.ParseAddr(q.ip)
		in := false
		for _, r := range ranges {
			in = in || r.Contains(ip)
		}
		if err != nil || !in || ip.String() != q.ip || !strings.HasSuffix(q.host, ".example.com") {
			t.Fatalf("%s asks %s (%v)", q.ip, q.host, err)
		}
		six = six || ip.Is6()
	}
	if !six {
		t.Error("nobody has an IPv6 address")
	}
}

// TestGensampleCombinedIsTheSameTrace in the form of nginx and Apache.
func TestGensampleCombinedIsTheSameTrace(t *testing.T) {
	line := regexp.MustCompile(`^\S+ - - \[01/Jan/2026:00:0\d:\d\d \+0000\] "(GET|POST) /\S* HTTP/1\.1" \d{3} \d+ "-" "[^"]+"$`)
	all := sample(1)
	lines := strings.Split(strings.TrimSuffix(gensample(t, "--format", "combined"), "\n"), "\n")
	if len(lines) != len(all) {
		t.Fatalf("%d lines for %d requests", len(lines), len(all))
	}
	for i, l := range lines {
		if !line.MatchString(l) || !strings.HasPrefix(l, all[i].ip+" ") {
			t.Fatalf("line %d is %s", i+1, l)
		}
	}
}

// TestGensampleWritesAFile, and refuses what it can't write.
func TestGensampleWritesAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.csv")
	if out := gensample(t, "-o", path); out != "" {
		t.Errorf("prints %q", out)
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != gensample(t) {
		t.Errorf("the file differs (%v)", err)
	}
	for want, args := range map[string][]string{
		`--format "xml": want csv or combined`: {"--format", "xml"},
		"no such file or directory":            {"-o", filepath.Join(t.TempDir(), "none", "x")},
		"unknown command":                      {"more"},
	} {
		c := newGensampleCommand()
		c.SetArgs(args)
		c.SilenceErrors, c.SilenceUsage = true, true
		if err := c.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
