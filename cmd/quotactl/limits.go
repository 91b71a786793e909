package main

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/policy/file"
	"github.com/quorate/quorate/internal/replay"
)

// limitFlags describe the limits of a replay: by files, or as one policy of one limit.
type limitFlags struct {
	policy, against, domain string

	limit     uint64
	window    string
	rate      string
	burst     uint64
	algorithm string
	key       string
	keyColumn string
	given     func(name string) bool
}

func (l *limitFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&l.policy, "policy", "", "policy file; every field is taken, Shadow policies are reported as they would decide")
	flags.StringVar(&l.against, "against", "", "another policy file to compare with")
	flags.StringVar(&l.domain, "domain", "", "domain of the requests (default: the policy file's only one)")
	flags.Uint64Var(&l.limit, "limit", 0, "how much a key may use within a window; of a rolling one above 100,000 what happens close together may count as one event, as of the later time")
	flags.StringVar(&l.window, "window", "", "length of the window, as 60s or 1h30m")
	flags.StringVar(&l.rate, "rate", "", "tokens a second that a bucket is refilled with, as 2 or 0.5")
	flags.Uint64Var(&l.burst, "burst", 0, "capacity of the bucket")
	flags.StringVar(&l.algorithm, "algorithm", "", "rolling (default with --limit), fixed, counter, or bucket (default with --rate)")
	flags.StringVar(&l.key, "key", "", "what has an allowance of its own: ip, host, ip-host, or names of columns with commas between")
	flags.StringVar(&l.keyColumn, "key-column", "", "the one column that is the key")
	l.given = flags.Changed
}

// fill puts the sets and the domain into cfg.
func (l *limitFlags) fill(cfg *replay.Config) (err error) {
	if err := l.exclusive(); err != nil {
		return err
	}
	if l.policy == "" {
		cfg.Set, err = l.one()
		cfg.Domain = adHoc
		return err
	}
	if cfg.Set, err = readSet(l.policy); err != nil {
		return err
	}
	if l.against != "" {
		against, err := readSet(l.against)
		if err != nil {
			return err
		}
		cfg.Against = &against
	}
	if cfg.Domain, err = l.chooseDomain(cfg.Set); err != nil {
		return err
	}
	if cfg.Against != nil && !hasDomain(*cfg.Against, cfg.Domain) {
		return fmt.Errorf("--against %s has no policy for the domain %q, which %s is replayed for", l.against, cfg.Domain, l.policy)
	}
	return nil
}

func hasDomain(set policy.Set, domain string) bool {
	return slices.ContainsFunc(set.Policies, func(p policy.Policy) bool { return p.Domain == domain })
}

// readSet reads a policy file; one that is wrong has been told whole by its error.
func readSet(path string) (policy.Set, error) {
	set, err := file.ReadFileToRehearse(path)
	if err != nil {
		return set, command.Failed(err)
	}
	return set, nil
}

func (l *limitFlags) chooseDomain(set policy.Set) (string, error) {
	if l.domain == "" {
		return replay.OnlyDomain(set)
	}
	if hasDomain(set, l.domain) {
		return l.domain, nil
	}
	return "", fmt.Errorf("--domain %q: %s has no policy for it", l.domain, l.policy)
}

// exclusive refuses flags that contradict each other.
func (l *limitFlags) exclusive() error {
	own := []string{"limit", "window", "rate", "burst", "algorithm", "key", "key-column"}
	for _, name := range own {
		if l.policy != "" && l.given(name) {
			return fmt.Errorf("--policy and --%s exclude each other: the file says what the limits are", name)
		}
	}
	switch {
	case l.policy != "":
		return nil
	case l.given("against") || l.given("domain"):
		return errors.New("--against and --domain need --policy")
	case !l.given("limit") && !l.given("rate"):
		return errors.New("say what to replay: --policy FILE, or --limit N --window D --key NAME, or --rate R --burst N --key NAME")
	case l.given("limit") && l.given("rate"):
		return errors.New("--limit and --rate exclude each other")
	case l.given("limit") != l.given("window"):
		return errors.New("--limit and --window go together")
	case l.given("rate") != l.given("burst"):
		return errors.New("--rate and --burst go together")
	case l.given("key") == l.given("key-column"):
		return errors.New("say what has an allowance of its own: either --key or --key-column")
	}
	return nil
}

// adHoc names everything of the policy that flags describe.
const adHoc = "replay"

// one makes the set of the one policy that the flags describe. Rows without the key are bad.
func (l *limitFlags) one() (policy.Set, error) {
	key, err := l.keyNames()
	if err != nil {
		return policy.Set{}, err
	}
	spec, err := l.spec()
	if err != nil {
		return policy.Set{}, err
	}
	spec.Name = "limit"
	set := policy.Set{
		Policies: []policy.Policy{{Name: adHoc, Domain: adHoc, Key: key, Limits: []policy.Limit{spec}}},
		Domains:  []policy.Domain{{Name: adHoc, Required: key}},
	}
	set.Normalize()
	if problems := set.Malformed(); len(problems) > 0 {
		return set, fmt.Errorf("these flags make no policy:\n%w", problems)
	}
	return set, nil
}

func (l *limitFlags) keyNames() ([]string, error) {
	if l.keyColumn != "" {
		return []string{l.keyColumn}, nil
	}
	if l.key == "ip-host" {
		return []string{"ip", "host"}, nil
	}
	names := strings.Split(l.key, ",")
	for i, name := range names {
		if names[i] = strings.TrimSpace(name); names[i] == "" {
			return nil, fmt.Errorf("--key %q: a name is empty", l.key)
		}
	}
	return names, nil
}

func (l *limitFlags) spec() (policy.Limit, error) {
	if l.given("rate") {
		return l.bucket()
	}
	window, err := policy.ParseDuration(l.window)
	if err != nil {
		return policy.Limit{}, fmt.Errorf("--window: %w", err)
	}
	spec := policy.Limit{Amount: l.limit, Window: window}
	switch l.algorithm {
	case "", "rolling":
		spec.Algorithm = limit.RollingWindow
		if l.limit > policy.MaxUnmergedAmount { // else a key's log would have no bound
			spec.Precision = max(1, window/policy.MaxUnmergedAmount+1)
		}
	case "fixed":
		spec.Algorithm = limit.FixedWindow
	case "counter":
		spec.Algorithm = limit.SlidingWindowCounter
	case "bucket":
		spec.Algorithm, spec.Refill = limit.TokenBucket, l.limit
	default:
		return spec, fmt.Errorf("--algorithm %q: want rolling, fixed, counter or bucket", l.algorithm)
	}
	return spec, nil
}

func (l *limitFlags) bucket() (policy.Limit, error) {
	if l.algorithm != "" && l.algorithm != "bucket" {
		return policy.Limit{}, fmt.Errorf("--algorithm %s: --rate and --burst are a bucket's; others have --limit and --window", l.algorithm)
	}
	refill, seconds, err := parseRate(l.rate)
	if err != nil {
		return policy.Limit{}, err
	}
	return policy.Limit{Algorithm: limit.TokenBucket, Amount: l.burst, Refill: refill, Window: int64(seconds) * 1e9}, nil
}

// parseRate reads a decimal number of tokens a second as a whole number of them in whole seconds.
func parseRate(text string) (tokens, seconds uint64, err error) {
	bad := fmt.Errorf("--rate %q: want a number of tokens a second, as 2 or 0.5, with at most 9 decimals", text)
	whole, fraction, _ := strings.Cut(text, ".")
	if len(fraction) > 9 {
		return 0, 0, bad
	}
	tokens, err = strconv.ParseUint(whole+fraction, 10, 63)
	if err != nil || tokens == 0 {
		return 0, 0, bad
	}
	seconds = 1
	for range fraction {
		seconds *= 10
	}
	shared := gcd(tokens, seconds)
	return tokens / shared, seconds / shared, nil
}

func gcd(a, b uint64) uint64 {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// describe shows the limits as a policy file says them.
func (l *limitFlags) describe() (string, error) {
	if l.policy != "" {
		text, err := os.ReadFile(l.policy)
		return string(text), err
	}
	set, err := l.one()
	if err != nil {
		return "", err
	}
	p := set.Policies[0]
	spec, amounts := p.Limits[0], ""
	switch window := policy.FormatDuration(spec.Window); spec.Algorithm {
	case limit.TokenBucket:
		amounts = fmt.Sprintf("tokenBucket: {capacity: %d, refill: %d, period: %s}", spec.Amount, spec.Refill, window)
	case limit.RollingWindow:
		precision := ""
		if spec.Precision > 0 {
			precision = ", precision: " + policy.FormatDuration(spec.Precision)
		}
		amounts = fmt.Sprintf("rollingWindow: {limit: %d, window: %s%s}", spec.Amount, window, precision)
	case limit.FixedWindow:
		amounts = fmt.Sprintf("fixedWindow: {limit: %d, window: %s}", spec.Amount, window)
	case limit.SlidingWindowCounter:
		amounts = fmt.Sprintf("slidingWindowCounter: {limit: %d, window: %s}", spec.Amount, window)
	}
	key := make([]string, len(p.Key))
	for i, name := range p.Key {
		key[i] = strconv.Quote(name)
	}
	return fmt.Sprintf("policies:\n- name: %s\n  domain: %s\n  key: [%s]\n  limits:\n  - {name: %s, %s}\ndomains:\n- {name: %s, required: [%s]}\n",
		p.Name, p.Domain, strings.Join(key, ", "), spec.Name, amounts, p.Domain, strings.Join(key, ", ")), nil
}

// byteSize is a number of bytes as people write it.
type byteSize int64

var byteUnits = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1}}

// Set implements pflag.Value.
func (b *byteSize) Set(text string) error {
	for _, unit := range byteUnits {
		digits, ok := strings.CutSuffix(strings.ToLower(text), strings.ToLower(unit.suffix))
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 62)
		high, low := bits.Mul64(n, uint64(unit.bytes))
		if err != nil || high > 0 || low > 1<<62 {
			break
		}
		*b = byteSize(low)
		return nil
	}
	return errors.New("want a size as 300MB or 1GiB")
}

// String implements pflag.Value.
func (b *byteSize) String() string {
	for _, unit := range []string{"GB", "MB"} {
		for _, u := range byteUnits {
			if u.suffix == unit && *b > 0 && int64(*b)%u.bytes == 0 {
				return strconv.FormatInt(int64(*b)/u.bytes, 10) + unit
			}
		}
	}
	return strconv.FormatInt(int64(*b), 10) + "B"
}

// Type implements pflag.Value.
func (b *byteSize) Type() string { return "size" }
