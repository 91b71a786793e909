package file

import (
	"fmt"
	"strings"

	"github.com/quorate/quorate/internal/policy"
)

// Places says where in a text what it says is. A set that was read has no lines any more, and what is found out
// about it later, such as what a cluster has against it, names policies and fields only.
type Places struct {
	reader   reader
	policies map[string]int // their positions, by namespace/name
}

// Locate reads a text for its places, whatever else is wrong with it.
func Locate(text []byte) *Places {
	p := &Places{policies: map[string]int{}}
	set := p.reader.read(text, func(policy.Set) policy.Problems { return nil }, MaxYAML)
	for i := range set.Policies {
		p.policies[p.reader.policyAt(&set, at(i))] = i
	}
	return p
}

func at(policy int) string { return fmt.Sprintf("policies[%d]", policy) }

// Line is the line of a field within a policy, "namespace/name", or the nearest that holds it; 0: the text has no such
// policy. Without a policy the field is one of the set, and by name only: its lists may be in another order by then.
func (p *Places) Line(policy, field string) int {
	if policy == "" {
		if field == "" || strings.Contains(field, "[") {
			return 0
		}
		return p.reader.line(field)
	}
	i, there := p.policies[policy]
	if !there {
		return 0
	}
	return p.reader.line(join(at(i), field))
}
