package chart_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhatTheOperatorWouldRefuseIsNotRendered: a value that it can't start with is refused by helm, before a pod that works
// makes room for one that doesn't. The last value within each bound is taken, by the operator too.
func TestWhatTheOperatorWouldRefuseIsNotRendered(t *testing.T) {
	for values, want := range map[string]string{
		`{certificates: {lifetime: 10s}}`:                                                         "certificates.lifetime: 10s is out of range, 30s to 8760h",
		`{certificates: {lifetime: 0s}}`:                                                          "certificates.lifetime: 0s is out of range",
		`{certificates: {lifetime: 29s999ms}}`:                                                    "certificates.lifetime: 29s999ms is out of range",
		`{certificates: {lifetime: 30s}}`:                                                         "",
		`{certificates: {lifetime: 0.5m}}`:                                                        "",
		`{certificates: {lifetime: 8760h}}`:                                                       "",
		`{certificates: {lifetime: 8759h60m}}`:                                                    "",
		`{certificates: {lifetime: 8760h1ms}}`:                                                    "certificates.lifetime: 8760h1ms is out of range",
		`{certificates: {lifetime: 9000h}}`:                                                       "certificates.lifetime: 9000h is out of range",
		`{certificates: {lifetime: 0.0000000001s}}`:                                               "at '/certificates/lifetime'",
		`{certificates: {lifetime: "1h 30m"}}`:                                                    "at '/certificates/lifetime'",
		`{certificates: {lifetime: 30m, mode: certManager, issuerRef: {name: ca}}}`:               "certificates.lifetime: 30m is out of range: cert-manager",
		`{certificates: {lifetime: 1h, mode: certManager, issuerRef: {name: ca}}}`:                "",
		`{certificates: {lifetime: 10s, mode: secrets}}`:                                          "", // whoever makes them decides
		`{operator: {resync: 2h}}`:                                                                "operator.resync: 2h is out of range, 1s to 1h",
		`{operator: {resync: 999ms}}`:                                                             "operator.resync: 999ms is out of range",
		`{operator: {resync: 0s}}`:                                                                "operator.resync: 0s is out of range",
		`{operator: {resync: 1s}}`:                                                                "",
		`{operator: {resync: 1h}}`:                                                                "",
		`{operator: {resync: 59m59.999s}}`:                                                        "",
		`{operator: {resync: 60m0.001s}}`:                                                         "operator.resync: 60m0.001s is out of range",
		`{fullnameOverride: "null"}`:                                                              `fullnameOverride: "null" is no name to YAML`,
		`{fullnameOverride: "true"}`:                                                              `fullnameOverride: "true" is no name to YAML`,
		`{domains: [{name: v}, {name: v, onNoMatch: Allow}]}`:                                     "domains: v comes twice",
		`{domains: [{name: -v}]}`:                                                                 "at '/domains/0/name'",
		`{domains: [{name: v/}]}`:                                                                 "at '/domains/0/name'",
		`{domains: [{name: a_b/c.d-e, required: ["~!", "true"]}, {name: "1"}]}`:                   "",
		`{domains: [{name: v, required: ["a b"]}]}`:                                               "at '/domains/0/required/0'",
		`{domains: [{name: v, required: [` + strings.Repeat("a", 129) + `]}]}`:                    "at '/domains/0/required/0'",
		`{domains: [{name: v, required: [a, b, c, d, e, f, g, h, i, j, k, l, m, "16"]}]}`:         "",
		`{domains: [{name: v, required: [a, b, c, d, e, f, g, h, i, j, k, l, m, "n", o, p, q]}]}`: "at '/domains/0/required'",
		`{allowedDomains: [{namespace: media, domains: [v-]}]}`:                                   "at '/allowedDomains/0/domains/0'",
		`{allowedDomains: [{namespace: media, domains: []}]}`:                                     "at '/allowedDomains/0/domains'",
		`{allowedDomains: [{namespace: "1", domains: ["2", a/b]}, {namespace: "null", domains: ["null"]}], gatewayNamespaces: ["1"]}`: "",
		`{replicas: 99, operator: {replicas: 9}}`: "",
		`{podMonitor: {interval: 1.5m}}`:          "at '/podMonitor/interval'",
	} {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
			t.Fatal(err)
		}
		if want != "" {
			if got := refused(t, "--values", file); !strings.Contains(got, want) {
				t.Errorf("%s: %s\nwant %s", values, got, want)
			}
			continue
		}
		operatorTakes(t, template(t, chart, "--values", file))
	}
}

// operatorTakes demands that the operator of a render would start, but for an API server.
func operatorTakes(t *testing.T, render string) {
	t.Helper()
	all := parse(t, render)
	config, _ := find(t, all, "ConfigMap", "quorate-operator").at("data", "operator.yaml").(string)
	file := filepath.Join(t.TempDir(), "operator.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"KUBECONFIG=" + filepath.Join(t.TempDir(), "none"), "POD_NAMESPACE=quorate"}
	_, errs, err := execute(t, env, filepath.Join(string(programs), "operator"), "run", "--config", file)
	if err == nil || !strings.HasPrefix(errs, "operator: find the API server: ") {
		t.Errorf("%v %s\nwith\n%s", err, errs, config)
	}
}
