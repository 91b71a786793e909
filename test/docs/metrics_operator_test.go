package docs

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/quorate/quorate/internal/operator"
	"github.com/quorate/quorate/internal/operator/issuer"
)

// TestEveryMetricOfTheOperatorIsDocumentedAndThere compares the operator's table with what it shows before it has seen
// anything: nothing of what it sees becomes a label.
func TestEveryMetricOfTheOperatorIsDocumentedAndThere(t *testing.T) {
	registry := prometheus.NewRegistry()
	operator.NewMetrics(registry)
	registry.MustRegister(&issuer.Issuer{})
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	front := httptest.NewServer(mux)
	defer front.Close()
	shown := map[string]*metric{}
	shownMetrics(t, strings.TrimPrefix(front.URL, "http://"), shown)
	compare(t, "The operator", documentedMetrics(t, "The operator"), shown)
}
