package operator

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/quorate/quorate/api/policy/v1alpha1"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/policy/file"
)

// reading is what an object's spec says.
type reading struct {
	spec     json.RawMessage
	policy   policy.Policy // normalized; nothing if there is a fault
	revision uint64
	size     int    // of its canonical form, in bytes
	fault    *fault // nil: none
}

// fault is why an object isn't accepted: a reason of the condition, and a text for people.
type fault struct{ reason, message string }

// Error is for people.
func (f *fault) Error() string { return f.message }

// read reads an object as the policy that it would be in a policy file.
func read(o *declared) reading {
	r := reading{spec: o.Spec}
	set, err := parse(o)
	if err != nil {
		r.fault = faultOf(err)
		return r
	}
	r.policy = set.Policies[0]
	r.revision, r.size = r.policy.Revision(), sizeOf(r.policy)
	return r
}

func parse(o *declared) (policy.Set, error) {
	text, err := asPolicyFile(o)
	if err != nil {
		return policy.Set{}, err
	}
	return file.Parse("object", text)
}

func sizeOf(p policy.Policy) int { return len(policy.Set{Policies: []policy.Policy{p}}.Canonical()) }

// asPolicyFile is a policy file, in JSON, with the object's policy in it.
func asPolicyFile(o *declared) ([]byte, error) {
	var spec map[string]json.RawMessage
	if err := json.Unmarshal(o.Spec, &spec); err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	fields := map[string]any{"name": o.Name, "namespace": o.Namespace}
	for _, field := range slices.Sorted(maps.Keys(spec)) {
		if _, taken := fields[field]; taken {
			return nil, &fault{v1alpha1.ReasonNotSupported, "spec." + field + ": " + unknownField}
		}
		fields[field] = spec[field]
	}
	text, err := json.Marshal(map[string]any{"policies": []any{fields}})
	if err != nil {
		return nil, fmt.Errorf("spec: %w", err)
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

// What the reader says of what only another version knows: of a field, of a word where one of some belongs, and of what this
// one has a word for and can't enforce. The first two no object of this version's CRD can have.
const (
	unknownField = "unknown field"
	unknownWord  = " is not one of "
	notYet       = "not supported yet"
)

func isUnknown(p file.Problem) bool {
	return strings.HasPrefix(p.Message, unknownField) || strings.Contains(p.Message, unknownWord)
}

// faultOf tells what is wrong with an object in the object's own terms. What is unknown comes first: the rest may only seem
// wrong to whom doesn't know it.
func faultOf(err error) *fault {
	var broken *file.Error
	if own := (*fault)(nil); errors.As(err, &own) {
		return own
	} else if !errors.As(err, &broken) {
		return &fault{v1alpha1.ReasonInvalid, err.Error()}
	}
	reason := v1alpha1.ReasonInvalid
	var unknown, other []string
	later := true
	for _, p := range broken.Problems {
		if line := problem(p.Path, p.Message); isUnknown(p) {
			unknown = append(unknown, line)
		} else {
			other, later = append(other, line), later && strings.Contains(p.Message, notYet)
		}
	}
	if len(unknown) > 0 || later {
		reason = v1alpha1.ReasonNotSupported
	}
	return &fault{reason, abridge(append(unknown, other...))}
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
