package operator

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/api/policy/v1alpha1"
)

// statusOf is what is to be said of an object, in view of the set in force.
func statusOf(o *declared, v verdict, held bool, h *holding, seen *observation) v1alpha1.RateLimitPolicyStatus {
	s := *o.Status.DeepCopy()
	s.ObservedGeneration = o.Generation
	s.Enforced = nil
	if h != nil {
		s.Enforced = &v1alpha1.Enforced{
			Version: h.since.String(), Generation: h.generation,
			Partitions: fmt.Sprintf("%d/%d", h.enforcedBy(seen), seen.partitions),
		}
		// That an earlier version held it too is no news, and no reason to write to each object when the operator starts.
		if was := o.Status.Enforced; was != nil && was.Generation == h.generation && h.generation > 0 {
			if v, err := client.ParseVersion(was.Version); err == nil && v.Before(h.since) {
				s.Enforced.Version = was.Version
			}
		}
	}
	set(&s, o, accepted(v))
	set(&s, o, programmed(o, v, held, h, seen))
	return s
}

// set sets a condition. Its time changes only with its status.
func set(s *v1alpha1.RateLimitPolicyStatus, o *declared, c metav1.Condition) {
	c.ObservedGeneration = o.Generation
	meta.SetStatusCondition(&s.Conditions, c)
}

func condition(kind, reason, message string) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	if reason == v1alpha1.ReasonAccepted || reason == v1alpha1.ReasonProgrammed {
		c.Status = metav1.ConditionTrue
	}
	return c
}

func accepted(v verdict) metav1.Condition {
	if v.fault != nil {
		return condition(v1alpha1.ConditionAccepted, v.fault.reason, v.fault.message)
	}
	message := "this revision is part of the policy set"
	if v.waits {
		message = "nothing stands against this revision but a deleted policy, in whose place it comes"
	}
	return condition(v1alpha1.ConditionAccepted, v1alpha1.ReasonAccepted, message)
}

func programmed(o *declared, v verdict, held bool, h *holding, seen *observation) metav1.Condition {
	says := func(reason, format string, args ...any) metav1.Condition {
		return condition(v1alpha1.ConditionProgrammed, reason, fmt.Sprintf(format, args...))
	}
	switch {
	case v.fault != nil:
		return says(v1alpha1.ReasonNotAccepted, "this revision is not accepted; %s", stays(o, h))
	case v.waits && held:
		return says(v1alpha1.ReasonRemovalHeld, "a deleted policy of this name, with another quota, is still enforced: its removal waits for a "+
			"confirmation, see the ConfigMap %s", heldName)
	case v.waits:
		return says(v1alpha1.ReasonPending, "a deleted policy of this name, with another quota, is still enforced, and removed first")
	case h == nil || h.generation != o.Generation:
		return says(v1alpha1.ReasonPending, "not in force yet; %s", stays(o, h))
	}
	n, missing := h.enforcedBy(seen), seen.unconfirmed()
	switch {
	case n == seen.partitions && n > 0:
		return says(v1alpha1.ReasonProgrammed, "the leader of every partition, confirmed by a majority, enforces this revision")
	case missing != "":
		return says(v1alpha1.ReasonUnreachable, "%d/%d partitions enforce this revision; no leader is confirmed of %s", n, seen.partitions, missing)
	}
	return says(v1alpha1.ReasonPending, "%d/%d partitions enforce this revision", n, seen.partitions)
}

// stays says what is enforced of an object in place of its newest revision.
func stays(o *declared, h *holding) string {
	switch {
	case h == nil:
		return "nothing of this object is enforced"
	case h.generation == 0:
		return "an earlier policy of this name stays enforced, of which generation is not known"
	case h.generation == o.Generation:
		return "it was put in force before, and stays"
	}
	return fmt.Sprintf("generation %d stays enforced", h.generation)
}

// unconfirmed names the partitions of which no leader is confirmed, a few if they are many; empty: all are.
func (o *observation) unconfirmed() string {
	const enough = 5
	var list []string
	for p := range o.partitions {
		if _, there := o.confirmed[uint32(p)]; !there {
			list = append(list, fmt.Sprint(p))
		}
	}
	if more := len(list) - enough; more > 0 {
		list = append(list[:enough], fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}

// lost is what is said of an object while no node tells what is in force. What was said of its newest revision
// stands; else it is said what can be seen in the object alone.
func lost(o *declared, v verdict) v1alpha1.RateLimitPolicyStatus {
	s := *o.Status.DeepCopy()
	s.ObservedGeneration = o.Generation
	if s.Enforced != nil {
		if _, of, found := strings.Cut(s.Enforced.Partitions, "/"); found {
			s.Enforced.Partitions = "0/" + of
		}
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAccepted); c == nil || c.ObservedGeneration != o.Generation {
		set(&s, o, accepted(v))
	}
	set(&s, o, condition(v1alpha1.ConditionProgrammed, v1alpha1.ReasonUnreachable, "no node tells what is enforced"))
	return s
}
