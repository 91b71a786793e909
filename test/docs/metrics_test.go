package docs

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const metricsPage = "docs/metrics.md"

// metric is one as a page has it, or a process shows it.
type metric struct {
	kind   string
	labels map[string][]string // values, sorted; of a page none where they aren't listed
}

// values has what the metric's label may be.
func (m *metric) add(label, value string) {
	if at, known := slices.BinarySearch(m.labels[label], value); !known {
		m.labels[label] = slices.Insert(m.labels[label], at, value)
	}
}

var quoted = regexp.MustCompile("`([^`]*)`")

// documentedMetrics reads the table below a heading.
func documentedMetrics(t *testing.T, heading string) map[string]*metric {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, metricsPage))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(content), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s: no heading %q", metricsPage, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	all := map[string]*metric{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 6 || !strings.HasPrefix(cells[1], " `quorate_") {
			continue
		}
		name := quoted.FindStringSubmatch(cells[1])[1]
		if all[name] != nil {
			t.Errorf("%s: %s is there twice", metricsPage, name)
		}
		all[name] = &metric{strings.TrimSpace(cells[2]), documentedLabels(cells[3])}
	}
	return all
}

// documentedLabels reads `name`: values; `name`: values.
func documentedLabels(cell string) map[string][]string {
	labels := map[string][]string{}
	for part := range strings.SplitSeq(cell, ";") {
		words := quoted.FindAllStringSubmatch(part, -1)
		if len(words) == 0 {
			continue
		}
		values := []string{}
		for _, w := range words[1:] {
			values = append(values, w[1])
		}
		slices.Sort(values)
		labels[words[0][1]] = values
	}
	return labels
}

var (
	sampleLine = regexp.MustCompile(`^(quorate_\w+?)(_bucket|_sum|_count)?(?:\{(.*)\})? \S+$`)
	labelPair  = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// shownMetrics reads what a process shows. Series are their names and labels.
func shownMetrics(t *testing.T, address string, into map[string]*metric) (series []string) {
	t.Helper()
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		line := lines.Text()
		if words := strings.Fields(line); len(words) == 4 && words[1] == "TYPE" && strings.HasPrefix(words[2], "quorate_") && into[words[2]] == nil {
			into[words[2]] = &metric{words[3], map[string][]string{}}
		}
		sample := sampleLine.FindStringSubmatch(line)
		if sample == nil {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		series = append(series, line[:at])
		name := sample[1]
		if into[name] == nil { // not a histogram's: its name ends so
			name += sample[2]
		}
		for _, pair := range labelPair.FindAllStringSubmatch(sample[3], -1) {
			if into[name].kind != "histogram" || pair[1] != "le" {
				into[name].add(pair[1], pair[2])
			}
		}
	}
	slices.Sort(series)
	return series
}

// compare says what a page has and processes don't, and the other way round. Values of lazy ones come with the
// first event of the kind.
func compare(t *testing.T, heading string, page, shown map[string]*metric) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		if page[name] == nil {
			t.Errorf("%s: %s is shown and not below %q", metricsPage, name, heading)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(page)) {
		doc, real := page[name], shown[name]
		if real == nil {
			t.Errorf("%s: %s is below %q and not shown", metricsPage, name, heading)
			continue
		}
		if doc.kind != real.kind {
			t.Errorf("%s: %s is a %s, not a %s", metricsPage, name, real.kind, doc.kind)
		}
		if d, r := slices.Sorted(maps.Keys(doc.labels)), slices.Sorted(maps.Keys(real.labels)); !slices.Equal(d, r) {
			t.Errorf("%s: %s has the labels %v, not %v", metricsPage, name, r, d)
			continue
		}
		for label, values := range doc.labels {
			compareValues(t, name+" "+label, values, real.labels[label], lazy[name])
		}
	}
}

// lazy are the metrics of which a series begins with its first event.
var lazy = map[string]bool{"quorate_gateway_answers_total": true, "quorate_gateway_http_requests_total": true}

func compareValues(t *testing.T, what string, page, shown []string, lazy bool) {
	t.Helper()
	if len(page) == 0 {
		return
	}
	for _, v := range shown {
		if !slices.Contains(page, v) {
			t.Errorf("%s: %s may be %q, and it isn't said", metricsPage, what, v)
		}
	}
	for _, v := range page {
		if !lazy && !slices.Contains(shown, v) {
			t.Errorf("%s: %s is never %q", metricsPage, what, v)
		}
	}
}

// TestEveryMetricIsDocumentedAndThere compares the tables of docs/metrics.md with what the nodes and the gateway
// of a running cluster show, both ways. Then it asks for other keys, domains and URLs, and no series is new.
func TestEveryMetricIsDocumentedAndThere(t *testing.T) {
	m := newMachines(t)
	m.play(runningPage, "Certificates")
	m.bringCertificates()
	m.configure()
	m.startNodes()
	m.bringFile("policies.yaml", "The first policies")
	m.play(runningPage, "The first policies")
	m.startGateway()

	nodes, gateway := map[string]*metric{}, map[string]*metric{}
	m.askAllSorts(rand.Uint64())
	before := m.scrape(nodes, gateway)
	compare(t, "A node", documentedMetrics(t, "A node"), nodes)
	compare(t, "A gateway", documentedMetrics(t, "A gateway"), gateway)
	m.askAllSorts(rand.Uint64())
	if after := m.scrape(nodes, gateway); !slices.Equal(before, after) {
		t.Errorf("%d series became %d:\n%s\n->\n%s", len(before), len(after), strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

// scrape returns all series.
func (m *machines) scrape(nodes, gateway map[string]*metric) (series []string) {
	m.t.Helper()
	for _, name := range nodeNames {
		for _, s := range shownMetrics(m.t, m.places[name+".example:8082"], nodes) {
			series = append(series, name+" "+s)
		}
	}
	return append(series, shownMetrics(m.t, m.places["127.0.0.1:8082"], gateway)...)
}

// askAllSorts asks the gateway what is right and what isn't, each time with names that nobody has seen.
func (m *machines) askAllSorts(seed uint64) {
	m.t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	m.t.Logf("seed %d", seed)
	for range 40 {
		name := fmt.Sprintf("x%x", random.Uint64())
		for path, status := range map[string]int{
			"/check?principal=" + name + "&api_class=convert":        http.StatusOK,
			"/check?principal=" + name + "&api_class=convert&cost=9": http.StatusTooManyRequests,
			"/check?principal=" + name:                               http.StatusForbidden, // no policy
			"/check?domain=" + name + "&principal=u1":                http.StatusForbidden,
			"/check?" + name + "=" + name:                            http.StatusForbidden,
			"/check?principal=u1&cost=" + name:                       http.StatusBadRequest,
			"/" + name:                                               http.StatusNotFound,
		} {
			if got := m.get(path); got != status {
				m.t.Fatalf("%s: %d, want %d", path, got, status)
			}
		}
	}
}

func (m *machines) get(path string) (status int) {
	m.t.Helper()
	response, err := http.Get("http://" + m.places["127.0.0.1:8080"] + path)
	m.must(err)
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	m.must(err)
	return response.StatusCode
}
