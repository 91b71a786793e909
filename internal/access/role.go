package access

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Kind is what a role is for: the host part of its URI.
type Kind string

const (
	Peer         Kind = "peer"          // a node of the cluster
	Gateway      Kind = "gateway"       // asks for admission
	PolicyWriter Kind = "policy-writer" // changes policies
	Reader       Kind = "reader"        // looks at everything
)

const (
	scheme       = "quorate"
	domainsKey   = "domains"
	everyDomain  = "*" // unescaped
	maxNodeBytes = 63  // a DNS label
	maxNameBytes = 253
)

// Role is one right, as one URI states it.
type Role struct {
	Kind       Kind
	Name       string   // of the node, or of whoever holds the role
	Domains    []string // of a gateway: sorted, each once, any bytes
	AllDomains bool     // of a gateway: those and all others
}

// ParseRole reads one URI. It grants what the URI says to the letter or returns an error that says what is
// wrong with it; it never guesses.
func ParseRole(u *url.URL) (Role, error) {
	r := Role{Kind: Kind(u.Host), Name: strings.TrimPrefix(u.Path, "/")}
	switch {
	case u.Scheme != scheme:
		return Role{}, fmt.Errorf("its scheme is not %s", scheme)
	case u.User != nil, u.Fragment != "", u.ForceQuery:
		return Role{}, errors.New("it has more than a role, a name and domains")
	case u.RawPath != "": // one spelling a name: what a log shows is what a person looks for
		return Role{}, errors.New("its name is written with escapes")
	}
	if err := r.checkName(); err != nil {
		return Role{}, err
	}
	switch {
	case r.Kind == Gateway:
		return r, r.readDomains(u.RawQuery)
	case u.RawQuery != "":
		return Role{}, fmt.Errorf("a %s takes no parameters", r.Kind)
	}
	return r, nil
}

func (r *Role) checkName() error {
	switch r.Kind {
	case Peer:
		if !isLabel(r.Name) {
			return errors.New("its node is not a DNS label (a-z, 0-9, inner hyphens, at most 63)")
		}
		return nil
	case Gateway, PolicyWriter, Reader:
		if r.Name == "" || len(r.Name) > maxNameBytes || strings.ContainsFunc(r.Name, notInName) {
			return fmt.Errorf("its name is not one to %d letters, digits, '-', '.', '_' or '@'", maxNameBytes)
		}
		return nil
	}
	return errors.New("its role is unknown")
}

func isLabel(s string) bool {
	return s != "" && len(s) <= maxNodeBytes && s[0] != '-' && s[len(s)-1] != '-' &&
		!strings.ContainsFunc(s, func(c rune) bool { return c != '-' && !isDigit(c) && !isLower(c) })
}

func notInName(c rune) bool {
	return !isDigit(c) && !isLower(c) && !isUpper(c) && !strings.ContainsRune("-._@", c)
}

func isDigit(c rune) bool { return '0' <= c && c <= '9' }
func isLower(c rune) bool { return 'a' <= c && c <= 'z' }
func isUpper(c rune) bool { return 'A' <= c && c <= 'Z' }

// readDomains reads the query by itself: to url.Values a '+' is a space, and a doubled key or a ';' is no
// error.
func (r *Role) readDomains(query string) error {
	key, list, _ := strings.Cut(query, "=")
	switch {
	case query == "":
		return errors.New("a gateway needs domains=")
	case key != domainsKey:
		return fmt.Errorf("parameter %s is unknown", quote(key))
	}
	for text := range strings.SplitSeq(list, ",") {
		if text == everyDomain && !r.AllDomains {
			r.AllDomains = true
			continue
		}
		domain, err := unescape(text)
		if err != nil {
			return err
		}
		r.Domains = append(r.Domains, domain)
	}
	slices.Sort(r.Domains)
	for i, domain := range r.Domains {
		switch {
		case domain == "":
			return errors.New("a domain is empty")
		case i > 0 && domain == r.Domains[i-1]:
			return fmt.Errorf("domain %s is named twice", quote(domain))
		}
	}
	return nil
}

// URL returns the one way that this package writes the role. ParseRole reads it back, unless the role is
// none that it could have returned: then it says what is wrong.
func (r Role) URL() *url.URL {
	u := &url.URL{Scheme: scheme, Host: string(r.Kind), Path: "/" + r.Name}
	var list []string
	for _, domain := range r.Domains {
		list = append(list, escape(domain))
	}
	if r.AllDomains {
		list = append(list, everyDomain)
	}
	if len(list) > 0 {
		u.RawQuery = domainsKey + "=" + strings.Join(list, ",")
	}
	return u
}

// String returns the URL's text.
func (r Role) String() string { return r.URL().String() }

const hexDigits = "0123456789ABCDEF"

// standsForItself says which bytes of a domain need no escape: those that no part of a URI has a use for
// (RFC 3986, unreserved), and '/', which names of domains like to hold and a query may.
func standsForItself(c byte) bool {
	return isDigit(rune(c)) || isLower(rune(c)) || isUpper(rune(c)) || strings.IndexByte("-._~/", c) >= 0
}

func escape(domain string) string {
	var b strings.Builder
	for _, c := range []byte(domain) {
		if standsForItself(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	return b.String()
}

// unescape refuses bytes that mean something elsewhere in a URI, as '+', '&' and '*' do: nobody can tell
// what their writer took them for.
func unescape(text string) (string, error) {
	for _, c := range []byte(text) {
		if c != '%' && !standsForItself(c) {
			return "", fmt.Errorf("domain %s has a byte that must be written %%%02X", quote(text), c)
		}
	}
	domain, err := url.PathUnescape(text)
	if err != nil {
		return "", fmt.Errorf("domain %s has a bad escape", quote(text))
	}
	return domain, nil
}

// quote quotes what a certificate says, the front of it if it is long: nothing of it may break a log line.
func quote(s string) string {
	const enough = 100
	if len(s) > enough {
		return fmt.Sprintf("%+q...", s[:enough])
	}
	return fmt.Sprintf("%+q", s)
}
