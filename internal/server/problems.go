package server

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/policy/file"
)

// place is where a problem of a set is: the policy's position and the field within it.
var place = regexp.MustCompile(`^policies\[([0-9]{1,9})\](?:\.|$)`)

// problemOf names the policy that a path as in policies[3].limits[0].window leads into, if the set has it.
func problemOf(set policy.Set, path, reason string) *quotav1.PolicyProblem {
	p := &quotav1.PolicyProblem{Field: path, Reason: reason}
	at := place.FindStringSubmatch(path)
	if at == nil {
		return p
	}
	i, err := strconv.Atoi(at[1])
	if err != nil || i >= len(set.Policies) {
		return p
	}
	namespace := set.Policies[i].Namespace
	if namespace == "" {
		namespace = policy.DefaultNamespace
	}
	p.Policy, p.Field = namespace+"/"+set.Policies[i].Name, withinPolicy(path)
	return p
}

// withinPolicy is the part of a path as in policies[3].limits[0].window that is about the policy.
func withinPolicy(path string) string { return path[len(place.FindString(path)):] }

// problemsOf tells of all that is wrong with a set.
func problemsOf(set policy.Set, problems policy.Problems) (told []*quotav1.PolicyProblem) {
	for _, p := range problems {
		told = append(told, problemOf(set, p.Path, p.Message))
	}
	return told
}

// readSet reads a set as a person or a program wrote it, and says what is wrong with it. The canonical form
// needs no other reader.
func readSet(text []byte) (policy.Set, []*quotav1.PolicyProblem) {
	if set, err := policy.ParseCanonical(text); err == nil {
		return set, problemsOf(set, set.Validate())
	}
	set, err := file.Parse("policies", text)
	if err == nil {
		return set, nil
	}
	broken := &file.Error{}
	if !errors.As(err, &broken) {
		return set, []*quotav1.PolicyProblem{{Reason: err.Error()}}
	}
	var told []*quotav1.PolicyProblem
	for _, p := range broken.Problems {
		one := &quotav1.PolicyProblem{Policy: p.Policy, Field: p.Path, Reason: p.Message, Line: uint32(p.Line)}
		if p.Policy != "" {
			one.Field = withinPolicy(p.Path)
		}
		told = append(told, one)
	}
	return set, told
}

// Bounds of what is told of a set: a reason and a field are for people, and a set may hold names of any length
// in places where they are wrong.
const (
	maxProblemText  = 1 << 10
	maxProblemBytes = 512 << 10
)

// bounded holds problems to what one message takes, and says how many more there are.
func bounded(problems []*quotav1.PolicyProblem) []*quotav1.PolicyProblem {
	size := 0
	for i, p := range problems {
		p.Policy, p.Field, p.Reason = clip(p.Policy), clip(p.Field), clip(p.Reason)
		if size += proto.Size(p) + fieldOverhead; size > maxProblemBytes {
			more := &quotav1.PolicyProblem{Reason: fmt.Sprintf("and %d more", len(problems)-i)}
			return append(problems[:i:i], more)
		}
	}
	return problems
}

// clip shortens a text, and leaves out what could not be sent.
func clip(s string) string {
	if len(s) > maxProblemText {
		s = s[:maxProblemText] + "..."
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
