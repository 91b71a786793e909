package operator

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/quorate/quorate/api/policy/v1alpha1"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/policy/file"
)

// reading is what an object's spec says.
type reading struct {
	policy   policy.Policy // normalized; nothing if there is a fault
	revision uint64
	size     int    // of its canonical form, in bytes
	fault    *fault // nil: none
}

// fault is why an object isn't accepted: a reason of the condition, and a text for people.
type fault struct{ reason, message string }

// read reads an object as the policy that it would be in a policy file.
func read(o *v1alpha1.RateLimitPolicy) reading {
	text, err := asPolicyFile(o)
	if err != nil {
		return reading{fault: &fault{v1alpha1.ReasonInvalid, err.Error()}}
	}
	set, err := file.Parse("object", text)
	if err != nil {
		return reading{fault: faultOf(err)}
	}
	p := set.Policies[0]
	return reading{policy: p, revision: p.Revision(), size: sizeOf(p)}
}

func sizeOf(p policy.Policy) int { return len(policy.Set{Policies: []policy.Policy{p}}.Canonical()) }

// asPolicyFile is a policy file, in JSON, with the object's policy in it.
func asPolicyFile(o *v1alpha1.RateLimitPolicy) ([]byte, error) {
	text, err := json.Marshal(map[string]any{"policies": []any{struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
		v1alpha1.RateLimitPolicySpec
	}{o.Name, o.Namespace, o.Spec}}})
	if err != nil {
		return nil, fmt.Errorf("write the spec as JSON: %w", err)
	}
	return escape(text), nil
}

// escape writes all but ASCII as escapes: in a string JSON may have as it is what YAML refuses or folds.
func escape(text []byte) (escaped []byte) {
	for _, r := range string(text) {
		if r < 0x7f {
			escaped = append(escaped, byte(r))
			continue
		}
		for _, half := range utf16.Encode([]rune{r}) {
			escaped = fmt.Appendf(escaped, `\u%04x`, half)
		}
	}
	return escaped
}

// notYet is how the reader ends what it says of a field that only another version can enforce.
const notYet = "not supported yet"

// faultOf tells what is wrong with an object in the object's own terms.
func faultOf(err error) *fault {
	broken := &file.Error{}
	if !errors.As(err, &broken) {
		return &fault{v1alpha1.ReasonInvalid, err.Error()}
	}
	reason := v1alpha1.ReasonNotSupported
	if slices.ContainsFunc(broken.Problems, func(p file.Problem) bool { return !strings.Contains(p.Message, notYet) }) {
		reason = v1alpha1.ReasonInvalid
	}
	var lines []string
	for _, p := range broken.Problems {
		lines = append(lines, problem(p.Path, p.Message))
	}
	return &fault{reason, abridge(lines)}
}

// problem is one thing that is wrong, at a path as in policies[0].limits[1].fixedWindow.limit of a set or file.
func problem(path, message string) string {
	if rest, found := strings.CutPrefix(path, "policies["); found {
		_, path, _ = strings.Cut(rest, "]")
		path = strings.TrimPrefix(path, ".")
	}
	switch path {
	case "":
		return message
	case "name", "namespace":
		return "metadata." + path + ": " + message
	}
	return "spec." + path + ": " + message
}

// maxMessage bounds what a condition says, in bytes: an event, which says it too, has room for 1 KiB.
const maxMessage = 900

// abridge joins lines, as many as fit, and says how many more there are.
func abridge(lines []string) string {
	text := ""
	for i, line := range lines {
		if len(text)+len(line) > maxMessage {
			if i == 0 {
				return strings.ToValidUTF8(line[:maxMessage], "") + "..."
			}
			return fmt.Sprintf("%s\nand %d more", text, len(lines)-i)
		}
		if text != "" {
			text += "\n"
		}
		text += line
	}
	return text
}
