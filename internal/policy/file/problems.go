package file

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/quorate/quorate/internal/policy"
)

// told is what was found, sorted by line, each with the policy that it is about.
func (r *reader) told(set *policy.Set) []Problem {
	slices.SortStableFunc(r.problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	for i := range r.problems {
		p := &r.problems[i]
		p.Policy = r.policyAt(set, p.Path)
	}
	if n := len(r.problems); r.full() {
		return append(r.problems, Problem{Line: r.problems[n-1].Line, Message: fmt.Sprintf("there may be more than these %d", n)})
	}
	return r.problems
}

// policyAt names the policy that a path leads into, as far as its names could be read.
func (r *reader) policyAt(set *policy.Set, path string) string {
	rest, inside := strings.CutPrefix(path, "policies[")
	number, _, _ := strings.Cut(rest, "]")
	i, err := strconv.Atoi(number)
	if !inside || err != nil || i >= len(set.Policies) {
		return ""
	}
	p := &set.Policies[i]
	switch {
	case p.Name == "" || r.broken[fmt.Sprintf("policies[%d].namespace", i)]:
		return p.Name
	case p.Namespace == "":
		return policy.DefaultNamespace + "/" + p.Name
	}
	return p.Namespace + "/" + p.Name
}
