package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/gateway"
	"github.com/quorate/quorate/internal/keyspace"
)

// say writes a question as a test reads it: domain cost [{name=value ...}].
func say(m *quotav1.CheckRequest) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d", m.GetDomain(), m.GetCost())
	for _, d := range m.GetDescriptors() {
		b.WriteString(" {")
		for i, e := range d.GetEntries() {
			if i > 0 {
				b.WriteByte(' ')
			}
			fmt.Fprintf(&b, "%s=%q", e.GetName(), e.GetValue())
		}
		b.WriteByte('}')
	}
	return b.String()
}

// values are a descriptor's entries by name.
func values(d *quotav1.Descriptor) map[string]string {
	m := map[string]string{}
	for _, e := range d.GetEntries() {
		m[e.GetName()] = string(e.GetValue())
	}
	return m
}

// TestQueries: what a query asks for, or what is wrong with it.
func TestQueries(t *testing.T) {
	long := strings.Repeat("v", keyspace.MaxValueLen+1)
	many := ""
	for i := range keyspace.MaxEntries + 1 {
		many += fmt.Sprintf("&n%d=v", i)
	}
	for query, want := range map[string]string{
		"":                                      `video-api 1 {}`,
		"principal=u42&api_class=convert":       `video-api 1 {api_class="convert" principal="u42"}`,
		"domain=other&cost=5&a=b":               `other 5 {a="b"}`,
		"a":                                     `video-api 1 {a=""}`,
		"a=":                                    `video-api 1 {a=""}`,
		"&&a=b&":                                `video-api 1 {a="b"}`,
		"a=b=c":                                 `video-api 1 {a="b=c"}`,
		"a=1+2%203":                             `video-api 1 {a="1 2 3"}`,
		"%61=%00%ff":                            `video-api 1 {a="\x00\xff"}`,
		"id=0123":                               `video-api 1 {id="0123"}`,
		"a=%3B":                                 `video-api 1 {a=";"}`,
		"a=1;b=2":                               `query: has a ';'`,
		"a=b&a=b":                               `parameter "a": is given twice`,
		"a=b&%61=c":                             `parameter "a": is given twice`,
		"cost=1&cost=1":                         `parameter "cost": is given twice`,
		"domain=x&domain=x":                     `parameter "domain": is given twice`,
		"domain=":                               `domain: is empty`,
		"domain":                                `domain: is empty`,
		"domain=" + strings.Repeat("d", 254):    `domain: has 254 bytes`,
		"a=%zz":                                 `parameter "a": has a broken percent-encoding`,
		"%zz=a":                                 `query: has a parameter name with a broken percent-encoding`,
		"%ff=a":                                 `query: has a parameter name that is not UTF-8`,
		"domain=%ff":                            `domain: is not UTF-8`,
		"=a":                                    `query: descriptor entry 1 has an empty name`,
		"a=" + long:                             `query: descriptor entry "a" has a value of 1025 bytes`,
		strings.Repeat("n", 129) + "=v":         `query: descriptor entry 1 has a name of 129 bytes`,
		many[1:]:                                `query: descriptor has 17 entries`,
		many[1:] + "&m1=v&m2=v":                 `query: has more than 16 entries`,
		"%0d%0a=1&%0d%0a=2":                     `parameter "\r\n": is given twice`,
		strings.Repeat("n", 300) + "&x=1&x=%zz": `parameter "x": has a broken`,
	} {
		s := newStand(allowing())
		expect(t, query, s.get(t, "/check?"+query), s.asker.asked, want)
	}
}

// TestBodies: what a body asks for, or what is wrong with it. Nothing in one is ignored.
func TestBodies(t *testing.T) {
	for body, want := range map[string]string{
		`{"descriptors":[{"principal":"u42"}]}`:                             `video-api 1 {principal="u42"}`,
		` {"cost":2,"domain":"other","descriptors":[{"a":"1"},{"b":"2"}]} `: `other 2 {a="1"} {b="2"}`,
		`{"descriptors":[{}]}`:                                              `video-api 1 {}`,
		`{"descriptors":[{"cost":"1","domain":"d","id":"x"}]}`:              `video-api 1 {cost="1" domain="d" id="x"}`,
		`{"descriptors":[{"a":"\u0000\n\"é🦉"}]}`:                            `video-api 1 {a="\x00\n\"é🦉"}`,
		``:                                    `body: is not one JSON value`,
		`null`:                                `body: is not an object`,
		`[]`:                                  `body: is not an object`,
		`{"descriptors":[{}]} {}`:             `body: is not one JSON value`,
		`{"descriptors":[{}],}`:               `body: is not one JSON value`,
		`{}`:                                  `descriptors: is missing`,
		`{"descriptors":[]}`:                  `descriptors: is empty`,
		`{"descriptors":null}`:                `descriptors: is not a list`,
		`{"descriptors":[null]}`:              `descriptors[0]: is not an object`,
		`{"descriptors":[{"a":1}]}`:           `descriptors[0]."a": is not a string`,
		`{"descriptors":[{},{"a":null}]}`:     `descriptors[1]."a": is not a string`,
		`{"descriptors":[{"a":{}}]}`:          `descriptors[0]."a": is not a string`,
		`{"descriptors":[{"a":"1","a":"1"}]}`: `descriptors[0]: has "a" twice`,
		`{"descriptors":[{"a":"1","\u0061":"1"}]}`:                `descriptors[0]: has "a" twice`,
		`{"descriptors":[{}],"descriptors":[{}]}`:                 `body: has "descriptors" twice`,
		`{"descriptors":[{}],"id":"x"}`:                           `"id": is not a field of a check`,
		`{"descriptors":[{}],"Cost":1}`:                           `"Cost": is not a field of a check`,
		`{"descriptors":[{}],"domain":1}`:                         `domain: is not a string`,
		`{"descriptors":[{}],"domain":null}`:                      `domain: is not a string`,
		`{"descriptors":[{}],"domain":""}`:                        `domain: is empty`,
		`{"descriptors":[{"":"1"}]}`:                              `descriptors[0]: descriptor entry 1 has an empty name`,
		"{\"descriptors\":[{\"a\":\"\xff\"}]}":                    `descriptors[0]."a": has text that is not UTF-8`,
		`{"descriptors":[{"a":"\ud800"}]}`:                        `descriptors[0]."a": has text that is not UTF-8`,
		"{\"descriptors\":[{\"\xff\":\"a\"}]}":                    `descriptors[0]: has text that is not UTF-8`,
		`{"descriptors":[` + strings.Repeat(`{},`, 16) + `{}]}`:   `descriptors: has more than 16 descriptors`,
		strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000): `body: is not one JSON value`,
	} {
		s := newStand(allowing())
		expect(t, body, s.post(t, body), s.asker.asked, want)
	}
}

// expect holds an answer to a request, or to the beginning of a message.
func expect(t *testing.T, input string, a answer, asked []*quotav1.CheckRequest, want string) {
	t.Helper()
	if a.status == http.StatusOK {
		if got := say(asked[0]); got != want {
			t.Errorf("%q asks for %s, want %s", input, got, want)
		}
		return
	}
	if a.status != http.StatusBadRequest || !strings.HasPrefix(text(a.Message), quoted(want)) ||
		text(a.Reason) != "invalid_argument" || len(asked) != 0 {
		t.Errorf("%q: status %d, %s, want %s", input, a.status, a.body, want)
	}
}

// quoted is s as text gives it: with JSON's escapes, and without its quotes at the ends.
func quoted(s string) string { return text(&s) }

// TestWhatIsNoCheckIsSaidInJSON: other paths, methods, types and sizes.
func TestWhatIsNoCheckIsSaidInJSON(t *testing.T) {
	n := newStand(allowing())
	for _, target := range []string{"/", "/check/", "//check", "/Check", "/metrics", "/livez", "/check/..", "/favicon.ico"} {
		if a := n.get(t, target); a.status != http.StatusNotFound || text(a.Reason) != "not_found" {
			t.Errorf("%s: status %d", target, a.status)
		}
	}
	for _, method := range []string{"HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"} {
		a := n.do(t, httptest.NewRequest(method, "/check?principal=u42", nil))
		if a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") != "GET, POST" {
			t.Errorf("%s: status %d, Allow %q", method, a.status, a.header.Get("Allow"))
		}
	}
	post := func(contentType, body string) answer {
		r := httptest.NewRequest(http.MethodPost, "/check", strings.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		return n.do(t, r)
	}
	for _, contentType := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", "application/json;;"} {
		if a := post(contentType, `{"descriptors":[{}]}`); a.status != http.StatusUnsupportedMediaType {
			t.Errorf("content type %q: status %d", contentType, a.status)
		}
	}
	if len(n.asker.asked) != 0 {
		t.Errorf("asked for %v", n.asker.asked)
	}
	if a := post("Application/JSON; charset=UTF-8", `{"descriptors":[{}]}`); a.status != http.StatusOK {
		t.Errorf("JSON: status %d", a.status)
	}
	body := `{"descriptors":[{}]}`
	if a := post("application/json", body+strings.Repeat(" ", gateway.MaxBody-len(body))); a.status != http.StatusOK {
		t.Errorf("the largest body: status %d", a.status)
	}
	if a := post("application/json", body+strings.Repeat(" ", gateway.MaxBody-len(body)+1)); a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("a larger body: status %d", a.status)
	}
}

// TestOverHTTPOnlyTheOnlyDomainMayBeLeftOut: where there are several, nobody guesses; before any is known, nobody
// can tell, and asking again is worth while.
func TestOverHTTPOnlyTheOnlyDomainMayBeLeftOut(t *testing.T) {
	for _, domains := range [][]string{nil, {"a", "b"}} {
		n := newStand(allowing())
		n.asker.domains = domains
		if a := n.get(t, "/check?principal=u42"); a.status != http.StatusBadRequest || !strings.HasPrefix(text(a.Message), "domain: is missing") {
			t.Errorf("%q: status %d, %s", domains, a.status, a.body)
		}
		if a := n.get(t, "/check?domain=b"); a.status != http.StatusOK || n.asker.asked[0].GetDomain() != "b" {
			t.Errorf("%q: status %d", domains, a.status)
		}
	}
	n := newStand(allowing())
	n.asker.domains = nil
	n.asker.setReady(false)
	if a := n.get(t, "/check?principal=u42"); a.status != http.StatusServiceUnavailable || text(a.Reason) != "not_ready" || len(n.asker.asked) != 0 {
		t.Errorf("before it is known: status %d, %s", a.status, a.body)
	}
}

// FuzzQuery: a query is read as package net/url reads it, or refused.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{"", "a=b&c=d", "domain=x&cost=3", "a=%00&b=%ff", "a=1&a=2", "%zz", "cost=-1", "&&=", "a=1;b=2", "%ff=1", "domain=%ff"} {
		f.Add(s)
	}
	n := newStand(allowing())
	f.Fuzz(func(t *testing.T, raw string) {
		n.asker.asked = nil
		r := httptest.NewRequest(http.MethodGet, "/check", nil)
		r.URL.RawQuery = raw
		a := n.do(t, r)
		if a.status != http.StatusOK {
			if a.status != http.StatusBadRequest || len(n.asker.asked) != 0 || !utf8.ValidString(a.body) {
				t.Fatalf("status %d: %s", a.status, a.body)
			}
			return
		}
		want, err := url.ParseQuery(raw)
		if err != nil {
			t.Fatalf("accepted, though %v", err)
		}
		got := n.asker.asked[0]
		if _, err := proto.Marshal(got); err != nil {
			t.Fatalf("asked what the wire can't carry: %v", err)
		}
		if domain, ok := want["domain"]; ok && (got.Domain != domain[0] || len(domain) != 1) {
			t.Fatalf("domain %q of %q", got.Domain, domain)
		}
		if cost, ok := want["cost"]; ok && fmt.Sprint(got.Cost) != strings.TrimLeft(cost[0], "0") {
			t.Fatalf("cost %d of %q", got.Cost, cost)
		}
		delete(want, "domain")
		delete(want, "cost")
		if len(got.Descriptors) != 1 || len(got.Descriptors[0].GetEntries()) != len(want) {
			t.Fatalf("%v of %v", got.Descriptors, want)
		}
		have := values(got.Descriptors[0])
		for name, v := range want {
			if value, ok := have[name]; !ok || len(v) != 1 || value != v[0] {
				t.Fatalf("entry %q is %q, not %q", name, value, v)
			}
		}
	})
}

// FuzzBody: a body is read as package encoding/json reads it, or refused.
func FuzzBody(f *testing.F) {
	for _, s := range []string{
		`{"descriptors":[{"principal":"u42"}]}`, `{"domain":"d","descriptors":[{"a":"\u00e9"},{}],"cost":12}`,
		`{"descriptors":[{"a":"1","a":"2"}]}`, `{"descriptors":[{}],"id":"x"}`, `[]`, `{"descriptors":[{"a":"\ud800"}]}`, `{"cost":1e3}`,
	} {
		f.Add(s)
	}
	n := newStand(allowing())
	f.Fuzz(func(t *testing.T, body string) {
		n.asker.asked = nil
		a := n.post(t, body)
		if a.status != http.StatusOK {
			if a.status != http.StatusBadRequest && a.status != http.StatusRequestEntityTooLarge || len(n.asker.asked) != 0 {
				t.Fatalf("status %d: %s", a.status, a.body)
			}
			return
		}
		var plain struct {
			Domain      string
			Descriptors []map[string]string
			Cost        *uint64
		}
		if err := json.Unmarshal([]byte(body), &plain); err != nil {
			t.Fatalf("accepted, though %v", err)
		}
		got := n.asker.asked[0]
		if plain.Domain != "" && got.Domain != plain.Domain || plain.Cost != nil && got.Cost != *plain.Cost ||
			len(got.Descriptors) != len(plain.Descriptors) || !utf8.ValidString(body) {
			t.Fatalf("asked for %s", say(got))
		}
		for i, d := range got.Descriptors {
			have := values(d)
			if len(d.GetEntries()) != len(plain.Descriptors[i]) {
				t.Fatalf("asked for %s", say(got))
			}
			for name, value := range plain.Descriptors[i] {
				if v, ok := have[name]; !ok || v != value {
					t.Fatalf("asked for %s", say(got))
				}
			}
		}
	})
}
