package operator

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/api/policy/v1alpha1"
)

func readSpec(s v1alpha1.RateLimitPolicySpec) reading {
	return read(&declared{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"}, Spec: asJSON(s)})
}

// TestYAMLHasNoSayInWhatAnObjectSays: text that JSON and YAML read differently comes through as it is.
func TestYAMLHasNoSayInWhatAnObjectSays(t *testing.T) {
	for _, value := range []string{"a", "null", "true", "1", "~", "é", "日本", "😀", "a: b # c", `\u0041 "x"`, "<&>", "a\u00a0b", "\ufffd"} {
		s := v1alpha1.RateLimitPolicySpec{}
		s.Match = v1alpha1.Entries{"e": v1alpha1.EntryValue(value)}
		s.Key = []v1alpha1.EntryName{"user"}
		s.Limits = []v1alpha1.Limit{{Name: "l", FixedWindow: &v1alpha1.Window{Limit: 1, Window: "1m"}}}
		r := readSpec(s)
		if r.fault != nil {
			t.Errorf("%q: %s", value, r.fault.message)
		} else if got := r.policy.Match[0].Value; got != value {
			t.Errorf("%q is read as %q", value, got)
		}
	}
}

// TestCRD03DurationForms: the operator's answer is the policy file's.
func TestCRD03DurationForms(t *testing.T) {
	for form, fine := range map[string]bool{
		"0s": false, "-5s": false, "1.5h": true, "100ms": true, "1d": false, "60": false, "": false, "1m 30s": false, "9999999h": false, "1h30m": true,
	} {
		s := v1alpha1.RateLimitPolicySpec{}
		s.Key = []v1alpha1.EntryName{"user"}
		s.Limits = []v1alpha1.Limit{{Name: "l", FixedWindow: &v1alpha1.Window{Limit: 1, Window: v1alpha1.Duration(form)}}}
		switch r := readSpec(s); {
		case fine != (r.fault == nil):
			t.Errorf("%q: %+v", form, r.fault)
		case !fine && (r.fault.reason != v1alpha1.ReasonInvalid || !strings.HasPrefix(r.fault.message, "spec.limits[0].fixedWindow.window: ")):
			t.Errorf("%q: %+v", form, r.fault)
		}
	}
}

// TestMessagesAreBounded: an event has room for 1 KiB, and takes nothing longer.
func TestMessagesAreBounded(t *testing.T) {
	s := v1alpha1.RateLimitPolicySpec{}
	for i := range 16 {
		s.Limits = append(s.Limits, v1alpha1.Limit{Name: v1alpha1.Name(fmt.Sprint("l", i)), FixedWindow: &v1alpha1.Window{Window: "1d"}})
	}
	long := readSpec(s).fault.message
	s.Limits[0].Name = v1alpha1.Name(strings.Repeat("é", 5000))
	for _, message := range []string{long, readSpec(s).fault.message} {
		if len(message) > 1000 || !strings.Contains(message, " more") && !strings.HasSuffix(message, "...") {
			t.Errorf("%d bytes: %s", len(message), message)
		}
	}
}
