package report

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/quorate/quorate/internal/replay"
)

const policyText = "policies:\n- name: per-ip   # <b>\"all\"</b> & 'more'\n  key: [ip]\n"

func pageOf(t *testing.T, s *replay.Summary, o HTMLOptions) (source string, root *html.Node) {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, s, o); err != nil {
		t.Fatal(err)
	}
	source = b.String()
	root, err := html.Parse(&b)
	if err != nil {
		t.Fatal(err)
	}
	return source, root
}

// elements are all those with one of the tags, in order.
func elements(root *html.Node, tags ...string) (all []*html.Node) {
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && (len(tags) == 0 || slices.Contains(tags, n.Data)) {
			all = append(all, n)
		}
	}
	return all
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}

// every fixture, with all that a page may hold.
func pages(t *testing.T, visit func(name, source string, root *html.Node)) {
	for name, s := range map[string]*replay.Summary{
		"plain": plain(), "bad": bad(), "compared": compared(), "unread": unread(), "hostile": hostile(), "zero": {},
	} {
		source, root := pageOf(t, s, HTMLOptions{Title: hostile().Top[0].Key, Policy: policyText})
		visit(name, source, root)
	}
}

// TestHTMLNeedsNothingElse: no script, no frame, no form, no address to load or to follow, and a policy
// that would forbid them.
func TestHTMLNeedsNothingElse(t *testing.T) {
	pages(t, func(name, source string, root *html.Node) {
		allowed := strings.Fields("html head meta title style body main header section h1 h2 p dl div dt dd span i figure " +
			"figcaption svg g rect line text details summary table caption thead tbody tr th td bdi pre code")
		for _, n := range elements(root) {
			if !slices.Contains(allowed, n.Data) {
				t.Errorf("%s has <%s>", name, n.Data)
			}
			for _, a := range n.Attr {
				if strings.HasPrefix(a.Key, "on") || slices.Contains([]string{"src", "href", "xlink:href", "style", "action", "srcset", "data"}, a.Key) {
					t.Errorf("%s has <%s %s=%q>", name, n.Data, a.Key, a.Val)
				}
			}
		}
		for _, style := range elements(root, "style") {
			if regexp.MustCompile(`(?i)@import|url\(|expression`).MatchString(textOf(style)) {
				t.Errorf("%s: a style loads something", name)
			}
		}
		csp := slices.IndexFunc(elements(root, "meta"), func(n *html.Node) bool {
			return attribute(n, "http-equiv") == "Content-Security-Policy" &&
				strings.HasPrefix(attribute(n, "content"), "default-src 'none'; style-src 'unsafe-inline'")
		})
		if csp < 0 {
			t.Errorf("%s has no content security policy", name)
		}
	})
}

// TestHTMLHoldsHostileKeysAsText: they are read as they were written, and are no markup.
func TestHTMLHoldsHostileKeysAsText(t *testing.T) {
	s := hostile()
	_, root := pageOf(t, s, HTMLOptions{Title: s.Top[1].Key, Policy: policyText})
	var shown []string
	for _, n := range elements(root, "bdi") {
		shown = append(shown, textOf(n))
	}
	for _, o := range s.Top {
		if !slices.Contains(shown, visible(keyName(o.Key), false)) {
			t.Errorf("%q is not there: %q", o.Key, shown)
		}
	}
	if got := textOf(elements(root, "code")[0]); got != policyText {
		t.Errorf("the policy is %q", got)
	}
	if got := textOf(elements(root, "title")[0]); got != s.Top[1].Key {
		t.Errorf("the title is %q", got)
	}
	s.Top[0].Key = strings.Repeat("k", 1<<20)
	if source, _ := pageOf(t, s, HTMLOptions{}); len(source) > 100_000 {
		t.Errorf("%d bytes for a megabyte of key", len(source))
	}
}

// TestHTMLIsAccessible: a language, one main heading, a caption for each table, words for each drawing,
// scopes for each head.
func TestHTMLIsAccessible(t *testing.T) {
	pages(t, func(name, _ string, root *html.Node) {
		if attribute(elements(root, "html")[0], "lang") != "en" || len(elements(root, "h1")) != 1 || textOf(elements(root, "title")[0]) == "" {
			t.Errorf("%s lacks its language, its heading or its title", name)
		}
		for _, n := range elements(root, "table") {
			if c := elements(n, "caption"); len(c) != 1 || textOf(c[0]) == "" {
				t.Errorf("%s has a table without a caption", name)
			}
		}
		for _, n := range elements(root, "th") {
			if attribute(n, "scope") == "" {
				t.Errorf("%s has a head without a scope: %s", name, textOf(n))
			}
		}
		for _, n := range elements(root, "svg") {
			if attribute(n, "role") != "img" || attribute(n, "aria-label") == "" {
				t.Errorf("%s has a drawing without words", name)
			}
		}
	})
}

// TestHTMLSaysWhatTheTextSays: the sentence, the sum, what is in shadow, what is a lower bound.
func TestHTMLSaysWhatTheTextSays(t *testing.T) {
	for _, c := range []struct {
		s    *replay.Summary
		want []string
	}{
		{plain(), []string{"5,000 of 12,345 requests would have been blocked (40.5 %).", "Lines: 12,345 = 12,345 requests + 0 bad + 0 blank + 0 header."}},
		{compared(), []string{
			"40 of them by Shadow policies alone: would block; live they pass.", "What a Shadow policy would block passes live.",
			"Compared with the other set", "Newly blocked: only by this set", "Most newly blocked", "media/trial",
			"these counts are lower bounds", "the time has no zone", "13,360 = 12,345 requests + 1,012 bad + 2 blank + 1 header",
		}},
		{unread(), []string{"No request was read, so nothing was decided.", "photo.jpg", "not a line of text"}},
	} {
		_, root := pageOf(t, c.s, HTMLOptions{})
		all := textOf(root)
		for _, want := range c.want {
			if !strings.Contains(all, want) {
				t.Errorf("no %q in\n%s", want, all)
			}
		}
	}
}

// TestTimelineStaysInItsFrame: bars lie side by side from left to right and end at the base.
func TestTimelineStaysInItsFrame(t *testing.T) {
	s := plain()
	for _, n := range []int{1, 2, 60, 95, 96, 97, 1000} {
		s.Series.Allowed, s.Series.Denied = nil, nil
		for i := range int64(n) {
			s.Series.Allowed, s.Series.Denied = append(s.Series.Allowed, i*i), append(s.Series.Denied, i%7)
		}
		line := newTimeline(s)
		if len(line.Bars) > mostBars {
			t.Errorf("%d bars", len(line.Bars))
		}
		right := place(0)
		for _, b := range line.Bars {
			if b.X < right || b.Width <= 0 || b.X+b.Width > whole || b.DeniedY+b.DeniedHeight != whole || b.AllowedY < 0 ||
				b.AllowedY > 0 && b.AllowedY+b.AllowedHeight != b.DeniedY {
				t.Fatalf("%d slices: %+v", n, b)
			}
			right = b.X + b.Width
		}
		for _, k := range slices.Concat(line.Counts, line.Times) {
			if k.At < 0 || k.At > whole {
				t.Errorf("%d slices: a tick at %s", n, k.At)
			}
		}
	}
}

// TestTicksAreRoundAndFew, from one request to the largest count, from a millisecond to centuries.
func TestTicksAreRoundAndFew(t *testing.T) {
	labels := func(ticks []tick) string {
		var all []string
		for _, k := range ticks {
			all = append(all, k.Label)
		}
		return strings.Join(all, " ")
	}
	for most, want := range map[int64]string{
		1: "0 1", 3: "0 1 2 3", 5: "0 2 4 6", 234: "0 100 200 300", 1_500: "0 500 1k 1.5k", 3_200_000: "0 1M 2M 3M 4M",
	} {
		if ticks, _ := countTicks(most); labels(ticks) != want {
			t.Errorf("up to %d: %s", most, labels(ticks))
		}
	}
	for n := int64(1); n > 0; n *= 2 {
		if ticks, top := countTicks(n); len(ticks) < 2 || len(ticks) > 6 || top < n {
			t.Errorf("up to %d: %s, %d", n, labels(ticks), top)
		}
		if ticks := timeTicks(start, n); len(ticks) > 16 {
			t.Errorf("over %d ns: %s", n, labels(ticks))
		}
	}
	for length, want := range map[int64]string{
		600 * second:        "00:00 00:02 00:04 00:06 00:08 00:10",
		30 * second:         "00:00:00 00:00:05 00:00:10 00:00:15 00:00:20 00:00:25 00:00:30",
		36 * 3600 * second:  "Jan 1 06:00 12:00 18:00 Jan 2 06:00 12:00",
		5 * 86_400 * second: "Jan 1 Jan 2 Jan 3 Jan 4 Jan 5 Jan 6",
	} {
		if got := labels(timeTicks(start, length)); got != want {
			t.Errorf("over %s: %s", span(length), got)
		}
	}
}

// TestWritePages leaves each page in the folder that QUORATE_PAGES names, to be looked at in a browser.
func TestWritePages(t *testing.T) {
	dir := os.Getenv("QUORATE_PAGES")
	if dir == "" {
		t.Skip("QUORATE_PAGES names no folder")
	}
	pages(t, func(name, source string, _ *html.Node) {
		if err := os.WriteFile(dir+"/"+name+".html", []byte(source), 0o644); err != nil {
			t.Fatal(err)
		}
	})
}
