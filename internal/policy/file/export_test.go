package file

import "github.com/quorate/quorate/internal/policy"

// ParseJSON reads a text of any size as if it were too large for YAML.
func ParseJSON(text []byte) (policy.Set, error) { return parse("f", text, policy.Set.Validate, 0) }
