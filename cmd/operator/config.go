package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/operator/issuer"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/policy/file"
)

// config is what the operator runs with. One that [readConfig] returns is complete and checked.
type config struct {
	Nodes          []string      `yaml:"nodes"` // gRPC addresses of all nodes
	TLS            *files        `yaml:"tls"`   // nil: the issuer's, or none
	DomainList     yaml.Node     `yaml:"domains"`
	AllowedDomains []allowance   `yaml:"allowedDomains"`
	Certificates   *certificates `yaml:"certificates"` // nil: somebody else issues them
	Resync         duration      `yaml:"resync"`
	LeaderElection *bool         `yaml:"leaderElection"`
	MetricsAddress string        `yaml:"metricsAddress"`
	HealthAddress  string        `yaml:"healthAddress"`
	Namespace      string        `yaml:"namespace"` // the operator's own
	LogLevel       string        `yaml:"logLevel"`

	level   slog.Level
	domains []policy.Domain
	allowed map[string][]string
	issuer  issuer.Config
}

type files struct {
	CA   string `yaml:"ca"`
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

type allowance struct {
	Namespace string   `yaml:"namespace"`
	Domains   []string `yaml:"domains"`
}

type certificates struct {
	Nodes             []string `yaml:"nodes"`
	Prefix            string   `yaml:"prefix"`
	Lifetime          duration `yaml:"lifetime"`
	GatewayNamespaces []string `yaml:"gatewayNamespaces"`
}

// duration is written as in policies.
type duration time.Duration

// UnmarshalYAML reads what the policy file's reader reads.
func (d *duration) UnmarshalYAML(n *yaml.Node) error {
	ns, err := policy.ParseDuration(n.Value)
	if err == nil && ns == 0 { // which stands for the default here
		err = fmt.Errorf("%s is not above 0", n.Value)
	}
	if err != nil {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %v", n.Line, err)}}
	}
	*d = duration(ns)
	return nil
}

// configError is everything that is wrong with a configuration, a line each.
type configError []problem

type problem struct {
	line int
	text string
}

// Error has a line for each problem.
func (e configError) Error() string {
	lines := make([]string, len(e))
	for i, p := range e {
		lines[i] = p.text
	}
	return strings.Join(lines, "\n")
}

// reader reads a configuration, and collects what is wrong with it.
type reader struct {
	config
	file     string
	root     yaml.Node
	problems configError
}

// maxBytes is far above any configuration; what is larger is some other file.
const maxBytes = 4 << 20

// readConfig reads a file. Its error says everything that is wrong, unless the file can't be read.
func readConfig(path string, getenv func(string) string) (*config, error) {
	if path == "" {
		return nil, errors.New("--config: is required: the file that names the nodes")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	text, err := io.ReadAll(io.LimitReader(f, maxBytes))
	if err != nil || len(text) == maxBytes {
		return nil, fmt.Errorf("--config: %s: larger than any configuration, or not to be read: %w", path, cmp.Or(err, io.ErrShortBuffer))
	}
	r := &reader{file: path}
	if r.parse(text) {
		r.complete(getenv)
		r.check()
	}
	if len(r.problems) > 0 {
		slices.SortStableFunc(r.problems, func(a, b problem) int { return cmp.Compare(a.line, b.line) })
		return nil, r.problems
	}
	return &r.config, nil
}

// parse takes what the file says; false: nothing of it is to be looked at further. Nothing of it is ignored.
func (r *reader) parse(text []byte) bool {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	err := d.Decode(&r.config)
	if broken := (*yaml.TypeError)(nil); errors.As(err, &broken) {
		for _, fault := range broken.Errors {
			r.broken(fault)
		}
	} else if err != nil {
		r.broken(strings.TrimPrefix(err.Error(), "yaml: "))
		return false
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		r.add("", "has more than one document")
	}
	return yaml.Unmarshal(text, &r.root) == nil
}

var (
	lineOf  = regexp.MustCompile(`^line (\d+): `)
	unknown = regexp.MustCompile(`^field (\S+) not found in type \S+$`)
	another = regexp.MustCompile(`^cannot unmarshal !!(\S+)(.*) into .*$`)
)

// broken reports what the YAML library says, without its words for types.
func (r *reader) broken(fault string) {
	line := 1
	if m := lineOf.FindStringSubmatch(fault); m != nil {
		line, _ = strconv.Atoi(m[1]) // it is digits
		fault = fault[len(m[0]):]
	}
	fault = unknown.ReplaceAllString(fault, "$1: unknown field")
	fault = another.ReplaceAllString(fault, "a $1$2 is not what belongs here")
	r.problems = append(r.problems, problem{line, fmt.Sprintf("%s:%d: %s", r.file, line, fault)})
}

// add reports what is wrong at a path, as in domains[1].name.
func (r *reader) add(path, format string, args ...any) {
	line, text := max(r.line(path), 1), fmt.Sprintf(format, args...)
	if path != "" {
		text = path + ": " + text
	}
	r.problems = append(r.problems, problem{line, fmt.Sprintf("%s:%d: %s", r.file, line, text)})
}

// line is where a path is, or the nearest that holds it.
func (r *reader) line(path string) int {
	if len(r.root.Content) == 0 {
		return 1
	}
	n, line := r.root.Content[0], 1
	for step := range strings.FieldsFuncSeq(path, func(c rune) bool { return c == '.' || c == '[' || c == ']' }) {
		next := (*yaml.Node)(nil)
		if i, err := strconv.Atoi(step); err == nil && n.Kind == yaml.SequenceNode && i < len(n.Content) {
			next, line = n.Content[i], n.Content[i].Line
		}
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				next, line = n.Content[i+1], n.Content[i].Line
			}
		}
		if next == nil {
			break
		}
		n = next
	}
	return line
}

// complete fills in what nobody gave.
func (r *reader) complete(getenv func(string) string) {
	r.Namespace = cmp.Or(r.Namespace, getenv("POD_NAMESPACE"))
	r.MetricsAddress = cmp.Or(r.MetricsAddress, ":8080")
	r.HealthAddress = cmp.Or(r.HealthAddress, ":8081")
	r.Resync = cmp.Or(r.Resync, duration(time.Minute))
	if r.LeaderElection == nil {
		yes := true
		r.LeaderElection = &yes
	}
	r.allowed = map[string][]string{}
	for _, a := range r.AllowedDomains {
		r.allowed[a.Namespace] = append(r.allowed[a.Namespace], a.Domains...)
	}
}

// check looks at what was read.
func (r *reader) check() {
	if len(r.Nodes) == 0 {
		r.add("nodes", "is required: the gRPC addresses of all nodes")
	}
	for i, address := range r.Nodes {
		r.checkAddress(fmt.Sprintf("nodes[%d]", i), address, 1)
		if host, _, _ := net.SplitHostPort(address); host == "" || slices.Contains(r.Nodes[:i], address) {
			r.add(fmt.Sprintf("nodes[%d]", i), "%q has no host, or is given twice", address)
		}
	}
	r.checkAddress("metricsAddress", r.MetricsAddress, 0)
	r.checkAddress("healthAddress", r.HealthAddress, 0)
	if r.Namespace == "" {
		r.add("namespace", "is required, here or by the environment variable POD_NAMESPACE: the operator's own")
	}
	if d := time.Duration(r.Resync); d < time.Second || d > time.Hour {
		r.add("resync", "%v is out of range, 1s to 1h", d)
	}
	if err := r.level.UnmarshalText([]byte(cmp.Or(r.LogLevel, "info"))); err != nil {
		r.add("logLevel", "%q is not one of debug, info, warn, error", r.LogLevel)
	}
	r.checkDomains()
	r.checkCertificates()
}

func (r *reader) checkAddress(path, address string, least uint64) {
	_, port, err := net.SplitHostPort(address)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n < least {
		r.add(path, "%q is not HOST:PORT, as in 10.0.0.1:8081", address)
	}
}

// checkDomains reads domains as the policy file does, so that the answer is the nodes'.
func (r *reader) checkDomains() {
	for i, a := range r.AllowedDomains {
		if a.Namespace == "" || len(a.Domains) == 0 {
			r.add(fmt.Sprintf("allowedDomains[%d]", i), "needs a namespace and domains")
		}
	}
	if r.DomainList.IsZero() {
		return
	}
	text, err := yaml.Marshal(map[string]any{"policies": []int{}, "domains": &r.DomainList})
	if err != nil {
		r.add("domains", "%v", err)
		return
	}
	set, err := file.Parse("domains", text)
	if broken := (*file.Error)(nil); errors.As(err, &broken) {
		for _, p := range broken.Problems {
			r.add(cmp.Or(p.Path, "domains"), "%s", p.Message)
		}
	}
	r.domains = set.Domains
}

// checkCertificates: by whom they are issued, if there are any.
func (r *reader) checkCertificates() {
	if r.TLS != nil && (r.TLS.CA == "" || r.TLS.Cert == "" || r.TLS.Key == "") {
		r.add("tls", "needs ca, cert and key")
	}
	if r.Certificates == nil {
		return
	}
	if r.TLS != nil {
		r.add("certificates", "and tls exclude each other: who issues certificates has one")
	}
	r.issuer = issuer.Config{
		Namespace: r.Namespace, Prefix: r.Certificates.Prefix, Nodes: r.Certificates.Nodes, Lifetime: time.Duration(r.Certificates.Lifetime),
		GatewayNamespaces: r.Certificates.GatewayNamespaces, Domains: r.allowed,
	}
	if _, err := issuer.New(r.issuer); err != nil {
		r.add("certificates", "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

func (f *files) access() access.Files { return access.Files{CA: f.CA, Cert: f.Cert, Key: f.Key} }
