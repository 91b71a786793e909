package access_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/access"
)

// identify returns what a certificate with these URIs grants.
func identify(t testing.TB, uris ...string) (access.Identity, error) {
	t.Helper()
	return access.FromCertificate(&x509.Certificate{URIs: parseAll(t, uris)})
}

func accepted(t testing.TB, uris ...string) access.Identity {
	t.Helper()
	id, err := identify(t, uris...)
	if err != nil {
		t.Fatalf("%q: %v", uris, err)
	}
	return id
}

// rights lists all that an identity may, in the domains given.
func rights(id access.Identity, domains ...string) string {
	var may []string
	if node, ok := id.Peer(); ok {
		may = append(may, "be "+node)
	}
	if id.MayCheckSomewhere() {
		may = append(may, "check somewhere")
	}
	for _, d := range domains {
		if id.MayCheck(d) {
			may = append(may, "check "+d)
		}
		if id.MayInspect(d) {
			may = append(may, "inspect "+d)
		}
	}
	if id.MayRead() {
		may = append(may, "read")
	}
	if id.MayWritePolicies() {
		may = append(may, "write")
	}
	return strings.Join(may, ", ")
}

func mustHave(t *testing.T, id access.Identity, want string) {
	t.Helper()
	if got := rights(id, "video", "mail"); got != want {
		t.Errorf("%s: may %q, want %q", id, got, want)
	}
}

func TestACertificateWithoutARoleMayNothing(t *testing.T) {
	id, err := identify(t)
	if !errors.Is(err, access.ErrNoRole) || !errors.Is(err, access.ErrRefused) {
		t.Errorf("no role: %v", err)
	}
	mustHave(t, id, "")
	mustHave(t, access.Identity{}, "")
}

func TestAPeerIsOnlyItself(t *testing.T) {
	n1 := accepted(t, "quorate://peer/n1")
	mustHave(t, n1, "be n1")
	for name, expect := range map[string]func(access.Identity) error{"n1": access.IsNode("n1"), "a peer": access.IsPeer} {
		if err := expect(n1); err != nil {
			t.Errorf("n1 isn't %s: %v", name, err)
		}
	}
	for _, other := range []string{"n2", "n", "n11", "N1", ""} {
		if err := access.IsNode(other)(n1); !errors.Is(err, access.ErrRefused) {
			t.Errorf("n1 passes for %q: %v", other, err)
		}
	}
	if _, err := identify(t, "quorate://peer/n1", "quorate://peer/n2"); !errors.Is(err, access.ErrRefused) {
		t.Errorf("one certificate for two nodes: %v", err)
	}
}

func TestAGatewayOfAnotherDomainIsRefused(t *testing.T) {
	mustHave(t, accepted(t, "quorate://gateway/edge?domains=video"), "check somewhere, check video, inspect video")
	mustHave(t, accepted(t, "quorate://gateway/edge?domains=mail,video"), "check somewhere, check video, inspect video, check mail, inspect mail")
	mustHave(t, accepted(t, "quorate://gateway/edge?domains=*"), "check somewhere, check video, inspect video, check mail, inspect mail")
	mustHave(t, accepted(t, "quorate://gateway/edge?domains=vide,video%2C,videos,Video,%2A"), "check somewhere")
	if accepted(t, "quorate://gateway/edge?domains=video").MayCheck("") {
		t.Error("the domain without a name is granted")
	}
}

func TestAReaderWritesNothing(t *testing.T) {
	mustHave(t, accepted(t, "quorate://reader/alice@example.com"), "inspect video, inspect mail, read")
}

func TestAPolicyWriterSpendsNothing(t *testing.T) {
	mustHave(t, accepted(t, "quorate://policy-writer/operator"), "read, write")
}

func TestLoopbackIsNoNode(t *testing.T) {
	mustHave(t, access.Loopback(), "check somewhere, check video, inspect video, check mail, inspect mail, read, write")
	if err := access.IsPeer(access.Loopback()); !errors.Is(err, access.ErrRefused) {
		t.Errorf("loopback passes for a node: %v", err)
	}
}

func TestRolesOfOneCertificateAddUp(t *testing.T) {
	mustHave(t, accepted(t, "quorate://peer/n1", "quorate://gateway/a?domains=mail", "quorate://gateway/b?domains=mail,x", "quorate://reader/r"),
		"be n1, check somewhere, inspect video, check mail, inspect mail, read")
	mustHave(t, accepted(t, "quorate://gateway/a?domains=x,video", "quorate://gateway/b?domains=a,mail"),
		"check somewhere, check video, inspect video, check mail, inspect mail")
	mustHave(t, accepted(t, "quorate://gateway/a?domains=mail", "quorate://policy-writer/w"), "check somewhere, check mail, inspect mail, read, write")
}

// TestOneBadURIRefusesTheWholeCertificate, alone and wherever it stands among good ones.
func TestOneBadURIRefusesTheWholeCertificate(t *testing.T) {
	good := []string{"quorate://gateway/g?domains=*", "quorate://policy-writer/w", "quorate://reader/r"}
	refused := func(uris ...string) {
		t.Helper()
		if id, err := identify(t, uris...); !errors.Is(err, access.ErrRefused) || rights(id, "video") != "" {
			t.Errorf("%q: %v, may %q", uris, err, rights(id, "video"))
		}
	}
	for _, bad := range badURIs {
		refused(bad)
		for at := range len(good) + 1 {
			refused(slices.Insert(slices.Clone(good), at, bad)...)
		}
	}
	for _, twice := range []string{"quorate://reader/r", "quorate://gateway/g?domains=a", "quorate://policy-writer/w"} {
		refused(append(slices.Clone(good), twice)...)
	}
	accepted(t, good...)
}

var badURIs = []string{
	// no role of ours
	"https://peer/n2", "spiffe://quorate/peer/n2", "quorate:peer/n2", "quorate:///peer/n2", "quorate://admin/x", "quorate://Reader/x",
	"quorate://reader./x", "quorate://reader:1/x", "/reader/x",
	// more than a role
	"quorate://me@reader/x", "quorate://reader/x#y", "quorate://reader/x?", "quorate://reader/x?domains=a",
	"quorate://policy-writer/x?domains=a", "quorate://peer/n2?domains=*",
	// a name that is none
	"quorate://reader", "quorate://reader/", "quorate://reader/x/y", "quorate://reader/x/", "quorate://reader//x", "quorate://reader/x%20y",
	"quorate://reader/%78", "quorate://reader/x%0Ay", "quorate://reader/" + strings.Repeat("x", 254),
	"quorate://peer/N2", "quorate://peer/-n2", "quorate://peer/n2-", "quorate://peer/n.2", "quorate://peer/" + strings.Repeat("n", 64),
	// domains that are none
	"quorate://gateway/x", "quorate://gateway/x?", "quorate://gateway/x?domains", "quorate://gateway/x?domains=", "quorate://gateway/x?domain=a",
	"quorate://gateway/x?Domains=a", "quorate://gateway/x?domains=a&domains=b", "quorate://gateway/x?domains=a&name=b", "quorate://gateway/x?a&domains=a",
	"quorate://gateway/x?domains=a;b", "quorate://gateway/x?domains=a,", "quorate://gateway/x?domains=a,,b", "quorate://gateway/x?domains=a,a",
	"quorate://gateway/x?domains=a,%61", "quorate://gateway/x?domains=*,*", "quorate://gateway/x?domains=a*", "quorate://gateway/x?domains=a+b",
	"quorate://gateway/x?domains=a%2", "quorate://gateway/x?domains=a%GG", "quorate://gateway/x?domains==a", "quorate://gateway/x?domains=a b",
}

func TestTooManyURIsAreRefused(t *testing.T) {
	var uris []string
	for i := range 64 {
		uris = append(uris, fmt.Sprintf("quorate://reader/r%d", i))
	}
	accepted(t, uris...)
	if _, err := identify(t, append(uris, "quorate://reader/one-more")...); !errors.Is(err, access.ErrRefused) {
		t.Errorf("65: %v", err)
	}
}

// TestADomainMayHoldAnyByte, and is then that domain and no other.
func TestADomainMayHoldAnyByte(t *testing.T) {
	for b := range 256 {
		domain := "a" + string([]byte{byte(b)}) + "z"
		role := access.Role{Kind: access.Gateway, Name: "g", Domains: []string{domain}}
		id := accepted(t, role.String())
		if !id.MayCheck(domain) || id.MayCheck("a") || id.MayCheck("z") || id.MayCheck("") || id.String() != role.String() {
			t.Errorf("byte %#02x: %s", b, id)
		}
	}
}

// TestAnIdentityIsFitForALog: its text is one line of printing ASCII, and so is that of a refusal.
func TestAnIdentityIsFitForALog(t *testing.T) {
	fit := func(s string) bool {
		return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
	}
	uris := []string{"quorate://peer/n1", "quorate://gateway/g?domains=%0A%22%FF,b,*"}
	if got, want := accepted(t, uris...).String(), strings.Join(uris, " "); got != want || !fit(got) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, id := range []access.Identity{{}, access.Loopback()} {
		if !fit(id.String()) {
			t.Errorf("%q", id)
		}
	}
	for _, u := range []*url.URL{
		{Scheme: "quorate", Host: "reader", Path: "/a\nb"}, {Scheme: "quorate", Host: "a\nb\xff", Path: "/n"},
		{Scheme: "quorate", Host: "gateway", Path: "/n", RawQuery: "a\nb=c"}, {Scheme: "quorate", Host: "gateway", Path: "/n", RawQuery: "domains=a\nb"}, {Scheme: "quorate", Host: "rédacteur", Path: "/n"},
		{Scheme: "quorate", Host: "gateway", Path: "/n", RawQuery: "domains=%0A%0A%" + strings.Repeat("x", 1000)},
	} {
		if _, err := access.FromCertificate(&x509.Certificate{URIs: []*url.URL{u}}); err == nil || !fit(err.Error()) || len(err.Error()) > 500 {
			t.Errorf("%#v: %v", u, err)
		}
	}
}

func TestAskingAllocatesNothing(t *testing.T) {
	id := accepted(t, "quorate://gateway/g?domains=a,b,c,d,e,f,video", "quorate://peer/n1")
	if n := testing.AllocsPerRun(100, func() {
		_, _, _, _, _ = id.MayCheck("video"), id.MayCheckSomewhere(), id.MayInspect("mail"), id.MayRead(), id.MayWritePolicies()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// plainly reads one URI in the plainest way: as text, with nothing that the rules don't name. It grants
// nothing where it understands nothing, and may grant what the product, for some other reason, refuses.
func plainly(uri string) (right, name string, domains map[string]bool, all bool) {
	rest, ok := strings.CutPrefix(uri, "quorate://")
	if !ok {
		return "", "", nil, false
	}
	right, rest, _ = strings.Cut(rest, "/")
	name, list, _ := strings.Cut(rest, "?domains=")
	domains = map[string]bool{}
	for _, d := range strings.Split(list, ",") {
		var plain []byte
		for i := 0; i < len(d); i++ {
			c := d[i]
			if c == '%' && i+2 < len(d) {
				_, _ = fmt.Sscanf(d[i+1:i+3], "%02x", &c)
				i += 2
			}
			plain = append(plain, c)
		}
		all = all || d == "*"
		domains[string(plain)] = d != "*" && d != ""
	}
	return right, name, domains, all
}

// FuzzFromCertificate: whatever is accepted grants no more than its text says, and writing it and reading
// it again changes nothing.
func FuzzFromCertificate(f *testing.F) {
	for _, uri := range append(badURIs, "quorate://peer/n1", "quorate://gateway/g?domains=a,b%2Cc,%2A,*", "quorate://reader/policy-writer",
		"quorate://policy-writer/w\nquorate://reader/r", "QUORATE://reader/r#") {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c := &x509.Certificate{}
		for uri := range strings.SplitSeq(text, "\n") {
			u, err := url.Parse(uri)
			if err != nil {
				return
			}
			c.URIs = append(c.URIs, u)
		}
		id, err := access.FromCertificate(c)
		if err != nil {
			if !errors.Is(err, access.ErrRefused) || id.String() != (access.Identity{}).String() {
				t.Fatalf("%q: %v, %s", text, err, id)
			}
			return
		}
		again := accepted(t, strings.Fields(id.String())...)
		if again.String() != id.String() {
			t.Fatalf("%q is written %s, and that %s", text, id, again)
		}
		compare(t, text, c.URIs, id)
		compare(t, text, c.URIs, again)
	})
}

// compare compares an identity with what its URIs plainly say.
func compare(t *testing.T, text string, uris []*url.URL, id access.Identity) {
	t.Helper()
	var reads, writes, inspects, all bool
	node, probes, granted := "", []string{"", "*", "a", "%2A", "video"}, map[string]bool{}
	for _, u := range uris {
		right, name, domains, every := plainly(u.String())
		switch right {
		case "peer":
			node = name
		case "reader":
			reads, inspects = true, true
		case "policy-writer":
			reads, writes = true, true
		case "gateway":
			all = all || every
			for d, ok := range domains {
				granted[d] = granted[d] || ok
				probes = append(probes, d, d+"x", strings.ToUpper(d), d[:len(d)/2])
			}
		default:
			t.Fatalf("%q was accepted", text)
		}
	}
	if somewhere := all || slices.Contains(slices.Collect(maps.Values(granted)), true); id.MayCheckSomewhere() != somewhere {
		t.Fatalf("%q: may check somewhere: %v", text, id.MayCheckSomewhere())
	}
	if is, _ := id.Peer(); is != node || id.MayRead() != reads || id.MayWritePolicies() != writes {
		t.Fatalf("%q: %s may %s", text, id, rights(id))
	}
	for _, d := range probes {
		if may := all || granted[d]; id.MayCheck(d) != may || id.MayInspect(d) != (may || inspects) {
			t.Fatalf("%q: domain %q: check %v, inspect %v", text, d, id.MayCheck(d), id.MayInspect(d))
		}
	}
}
