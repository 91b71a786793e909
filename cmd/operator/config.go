package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/configfile"
	"github.com/quorate/quorate/internal/operator/issuer"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/policy/file"
)

// config is what the operator runs with. One that [readConfig] returns is complete and checked.
type config struct {
	Nodes          []string       // gRPC addresses of all nodes
	TLS            *access.Files  // nil: the issuer's, or none
	Certificates   *issuer.Config // nil: somebody else issues them
	Domains        []policy.Domain
	Allowed        map[string][]string
	Resync         time.Duration
	LeaderElection bool
	MetricsAddress string
	HealthAddress  string
	Namespace      string // the operator's own
	LogLevel       slog.Level
}

// reader reads a configuration.
type reader struct {
	config
	*configfile.File
	domains *yaml.Node // nil: there are none
}

// readConfig reads a file. Its error says everything that is wrong, unless the file can't be read.
func readConfig(path string, getenv func(string) string) (_ *config, err error) {
	if path == "" {
		return nil, errors.New("--config: is required: the file that names the nodes")
	}
	r := &reader{config: config{
		Allowed: map[string][]string{}, Resync: time.Minute, LeaderElection: true,
		MetricsAddress: ":8080", HealthAddress: ":8081", Namespace: getenv("POD_NAMESPACE"),
	}}
	if r.File, err = configfile.Read(path, r.fields()...); err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	r.check()
	if err := r.Err(); err != nil {
		return nil, err
	}
	return &r.config, nil
}

func (r *reader) fields() []configfile.Field {
	return []configfile.Field{
		{Name: "nodes", Read: configfile.IntoTexts(&r.Nodes)},
		{Name: "tls", Read: r.readTLS},
		{Name: "domains", Read: func(v configfile.Value) { r.domains = v.Node() }},
		{Name: "allowedDomains", Read: func(v configfile.Value) { v.Each(r.readAllowance) }},
		{Name: "certificates", Read: r.readCertificates},
		{Name: "resync", Read: configfile.Into(&r.Resync, parseDuration)},
		{Name: "leaderElection", Read: configfile.IntoBool(&r.LeaderElection)},
		{Name: "metricsAddress", Read: configfile.IntoText(&r.MetricsAddress)},
		{Name: "healthAddress", Read: configfile.IntoText(&r.HealthAddress)},
		{Name: "namespace", Read: configfile.IntoText(&r.Namespace)},
		{Name: "logLevel", Read: configfile.Into(&r.LogLevel, command.ParseLevel)},
	}
}

func (r *reader) readTLS(v configfile.Value) {
	r.TLS = &access.Files{}
	v.Fields(
		configfile.Field{Name: "ca", Required: true, Read: configfile.IntoText(&r.TLS.CA)},
		configfile.Field{Name: "cert", Required: true, Read: configfile.IntoText(&r.TLS.Cert)},
		configfile.Field{Name: "key", Required: true, Read: configfile.IntoText(&r.TLS.Key)},
	)
}

func (r *reader) readAllowance(v configfile.Value) {
	namespace, domains := "", []string(nil)
	v.Fields(
		configfile.Field{Name: "namespace", Required: true, Read: configfile.IntoText(&namespace)},
		configfile.Field{Name: "domains", Required: true, Read: func(v configfile.Value) {
			var ok bool
			if domains, ok = v.Texts(); ok && len(domains) == 0 {
				v.Refuse("is empty")
			}
		}},
	)
	r.Allowed[namespace] = append(r.Allowed[namespace], domains...)
}

func (r *reader) readCertificates(v configfile.Value) {
	c := &issuer.Config{}
	r.Certificates = c
	v.Fields(
		configfile.Field{Name: "nodes", Read: configfile.IntoTexts(&c.Nodes)},
		configfile.Field{Name: "prefix", Read: configfile.IntoText(&c.Prefix)},
		configfile.Field{Name: "lifetime", Read: configfile.Into(&c.Lifetime, parseDuration)},
		configfile.Field{Name: "gatewayNamespaces", Read: configfile.IntoTexts(&c.GatewayNamespaces)},
	)
}

// parseDuration reads a duration that is written as in policies. None is 0, which stands for the default.
func parseDuration(text string) (time.Duration, error) {
	ns, err := policy.ParseDuration(text)
	if err == nil && ns == 0 {
		err = fmt.Errorf("%s is not above 0", text)
	}
	return time.Duration(ns), err
}

// check looks at what was read.
func (r *reader) check() {
	if len(r.Nodes) == 0 {
		r.Add("nodes", "is required: the gRPC addresses of all nodes")
	}
	for i, address := range r.Nodes {
		switch host, _, err := command.SplitAddress(address, 1); {
		case err != nil:
			r.Add(fmt.Sprintf("nodes[%d]", i), "%v", err)
		case host == "" || slices.Contains(r.Nodes[:i], address):
			r.Add(fmt.Sprintf("nodes[%d]", i), "%q has no host, or is given twice", address)
		}
	}
	for _, at := range [...]struct{ path, address string }{{"metricsAddress", r.MetricsAddress}, {"healthAddress", r.HealthAddress}} {
		if _, _, err := command.SplitAddress(at.address, 0); err != nil {
			r.Add(at.path, "%v", err)
		}
	}
	if r.Namespace == "" {
		r.Add("namespace", "is required, here or by the environment variable POD_NAMESPACE: the operator's own")
	}
	if r.Resync < time.Second || r.Resync > time.Hour {
		r.Add("resync", "%v is out of range, 1s to 1h", r.Resync)
	}
	r.checkDomains()
	r.checkCertificates()
}

// checkDomains reads domains as the policy file does, so that the answer is the nodes'.
func (r *reader) checkDomains() {
	if r.domains == nil {
		return
	}
	text, err := yaml.Marshal(map[string]any{"policies": []int{}, "domains": r.domains})
	if err != nil {
		r.Add("domains", "%v", err)
		return
	}
	set, err := file.Parse("domains", text)
	if broken := (*file.Error)(nil); errors.As(err, &broken) {
		for _, p := range broken.Problems {
			r.Add(cmp.Or(p.Path, "domains"), "%s", p.Message)
		}
	}
	r.Domains = set.Domains
}

// checkCertificates: by whom they are issued, if there are any.
func (r *reader) checkCertificates() {
	c := r.Certificates
	if c == nil {
		return
	}
	if r.TLS != nil {
		r.Add("certificates", "and tls exclude each other: who issues certificates has one")
	}
	c.Namespace, c.Domains = r.Namespace, r.Allowed
	if _, err := issuer.New(*c); err != nil {
		r.Add("certificates", "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}
