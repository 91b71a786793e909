package issuer

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/quorate/quorate/internal/access"
)

const (
	// DefaultLifetime is how long a certificate is valid unless the configuration says otherwise.
	DefaultLifetime = 90 * day
	// ShortestLifetime leaves ten seconds between a certificate's renewal and its end: enough for tests, and for
	// nothing else, since volumes take a minute to show what their Secrets hold.
	ShortestLifetime = 30 * time.Second
	// LongestLifetime keeps every certificate far within its CA's life, and what was revoked by not renewing it from
	// living for years.
	LongestLifetime = 365 * day

	caLifetime    = 3650 * day
	defaultResync = time.Minute
	day           = 24 * time.Hour
)

// Config says what is wanted.
type Config struct {
	// Namespace is the release's: the CA is here, the Secrets of the nodes, and one for gateways.
	Namespace string
	// Prefix is what names of Secrets begin with: PREFIX-ca, PREFIX-node-NODE.
	Prefix string
	// Nodes are the names of the nodes, each a DNS label.
	Nodes []string
	// Lifetime of each certificate, [ShortestLifetime] to [LongestLifetime]; 0: [DefaultLifetime].
	Lifetime time.Duration
	// GatewayNamespaces are those that may have a Secret for gateways, if labelled for it, beside Namespace.
	GatewayNamespaces []string
	// Domains are those that gateways of a namespace may ask for beside the one of its own name.
	Domains map[string][]string
	// Resync is how often everything is looked at though nothing is due; 0: every minute. Secrets are not watched,
	// since that would take the right to list them all: what others do to one is seen by then.
	Resync time.Duration
	// CALifetime is for tests; 0: 3,650 days.
	CALifetime time.Duration
	// Now is the wall clock; nil: time.Now.
	Now func() time.Time
	// Log hears of what is done; nil: nobody does.
	Log *slog.Logger
}

// complete fills in defaults and returns all that is wrong, joined.
func (c *Config) complete() error {
	c.Lifetime = orElse(c.Lifetime, DefaultLifetime)
	c.Resync = orElse(c.Resync, defaultResync)
	c.CALifetime = orElse(c.CALifetime, caLifetime)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	errs := []error{c.checkLifetimes(), c.checkNamespaces()}
	if len(c.Nodes) == 0 {
		errs = append(errs, errors.New("nodes: names none"))
	}
	for i, node := range c.Nodes {
		if slices.Contains(c.Nodes[:i], node) {
			errs = append(errs, fmt.Errorf("nodes: %q is named twice", node))
		}
	}
	for _, w := range c.every() {
		if _, err := access.ParseRole(w.role.URL()); err != nil {
			errs = append(errs, fmt.Errorf("the role of %s, %s: %w", called(w.at), w.role, err))
		}
		if wrong := validation.IsDNS1123Subdomain(w.at.Name); len(wrong) > 0 && w.at != own {
			errs = append(errs, fmt.Errorf("the name %s of a Secret: %s", w.at, strings.Join(wrong, "; ")))
		}
	}
	return errors.Join(errs...)
}

func orElse(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

func (c *Config) checkLifetimes() error {
	switch {
	case c.Lifetime < ShortestLifetime || c.Lifetime > LongestLifetime:
		return fmt.Errorf("lifetime: %v is not from %v to %v", c.Lifetime, ShortestLifetime, LongestLifetime)
	case c.CALifetime < 10*c.Lifetime:
		return fmt.Errorf("lifetime: %v is more than a tenth of the CA's %v", c.Lifetime, c.CALifetime)
	case c.Resync < 0:
		return fmt.Errorf("resync: %v is negative", c.Resync)
	}
	return nil
}

func (c *Config) checkNamespaces() error {
	var errs []error
	for i, ns := range c.GatewayNamespaces {
		if ns == c.Namespace {
			errs = append(errs, fmt.Errorf("gatewayNamespaces: %q is the release's own, which always has a Secret for gateways", ns))
		}
		if slices.Contains(c.GatewayNamespaces[:i], ns) {
			errs = append(errs, fmt.Errorf("gatewayNamespaces: %q is named twice", ns))
		}
	}
	all := append([]string{c.Namespace}, c.GatewayNamespaces...)
	for _, ns := range all {
		if wrong := validation.IsDNS1123Label(ns); len(wrong) > 0 {
			errs = append(errs, fmt.Errorf("namespace %q: %s", ns, strings.Join(wrong, "; ")))
		}
	}
	for _, ns := range slices.Sorted(maps.Keys(c.Domains)) {
		if slices.Contains(c.Domains[ns], "") {
			errs = append(errs, fmt.Errorf("domains of %q: one is empty", ns))
		}
	}
	return errors.Join(errs...)
}

// own stands for the operator's own certificate, which is in no Secret: no namespace has this name.
var own = types.NamespacedName{Name: "the operator's own certificate"}

// called is how people know a Secret.
func called(at types.NamespacedName) string {
	if at == own {
		return at.Name
	}
	return at.String()
}

// gatewaySecret is the name of a gateway's Secret, in every namespace: gateways are told nothing else.
const gatewaySecret = "quorate-gateway"

func (c *Config) ca() types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.Prefix + "-ca"}
}

func (c *Config) node(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.Prefix + "-node-" + name}
}

func gateway(namespace string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: gatewaySecret}
}

// wanted is a certificate that there should be.
type wanted struct {
	at   types.NamespacedName
	role access.Role
}

// every lists what could be wanted: the release's, then that of each gateway namespace.
func (c *Config) every() []wanted {
	all := []wanted{
		{own, access.Role{Kind: access.PolicyWriter, Name: "operator@" + c.Namespace}},
		{gateway(c.Namespace), c.gatewayRole(c.Namespace)},
	}
	for _, n := range c.Nodes {
		all = append(all, wanted{c.node(n), access.Role{Kind: access.Peer, Name: n}})
	}
	for _, ns := range c.GatewayNamespaces {
		all = append(all, wanted{gateway(ns), c.gatewayRole(ns)})
	}
	return all
}

// gatewayRole lets the gateways of a namespace ask for the domain of its name, and for those that it may use besides.
func (c *Config) gatewayRole(namespace string) access.Role {
	domains := append([]string{namespace}, c.Domains[namespace]...)
	slices.Sort(domains)
	return access.Role{Kind: access.Gateway, Name: namespace, Domains: slices.Compact(domains)}
}
