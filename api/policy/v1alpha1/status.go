package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RateLimitPolicyStatus says what became of a policy.
type RateLimitPolicyStatus struct {
	// conditions are Accepted and Programmed. Each carries the generation that it is about: one of an older generation
	// says nothing about the newest.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the newest generation that the operator has looked at.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// enforced says what is enforced of this policy, which may be an older revision of it. Absent: nothing.
	// +optional
	Enforced *Enforced `json:"enforced,omitempty"`
}

// Enforced says what is enforced of a policy.
type Enforced struct {
	// version is that of the policy set that holds it, "epoch.number".
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`

	// generation is the one of this object that the set holds.
	// +optional
	Generation int64 `json:"generation,omitempty"`

	// partitions says how many partitions enforce that set, of how many, as in 2/3. It claims nothing about traffic.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Partitions string `json:"partitions,omitempty"`
}

// The types of conditions.
const (
	// ConditionAccepted is True if the newest revision of the object is part of the policy set that the operator asks the
	// nodes to enforce.
	ConditionAccepted = "Accepted"

	// ConditionProgrammed is True once the leader of every partition, confirmed by a majority, enforces the newest revision.
	ConditionProgrammed = "Programmed"
)

// The reasons of Accepted.
const (
	// ReasonAccepted (True): the revision is part of the set.
	ReasonAccepted = "Accepted"

	// ReasonInvalid (False): the object says something that no policy may say; the message says what and where.
	ReasonInvalid = "Invalid"

	// ReasonConflicted (False): an older object of this namespace has the same quota, and counts.
	ReasonConflicted = "Conflicted"

	// ReasonDomainNotAllowed (False): the namespace may not use the domain; the operator's configuration says which it may.
	ReasonDomainNotAllowed = "DomainNotAllowed"

	// ReasonNotSupported (False): the object asks for what this version can't enforce yet, as with a field or a word that only
	// a newer one knows, or for a change that it can't make. The last good revision stays.
	ReasonNotSupported = "NotSupported"

	// ReasonRefused (False): the nodes refused the set because of this object. The last good revision stays.
	ReasonRefused = "Refused"
)

// The reasons of Programmed.
const (
	// ReasonProgrammed (True): every partition enforces the newest revision.
	ReasonProgrammed = "Programmed"

	// ReasonPending (False): accepted, and some partition doesn't enforce it yet, or hasn't confirmed that it does.
	ReasonPending = "Pending"

	// ReasonNotAccepted (False): the newest revision isn't accepted. The message says whether the last good one is
	// enforced, or nothing of this object.
	ReasonNotAccepted = "NotAccepted"

	// ReasonRemovalHeld (False): the set that holds this revision would remove so much that it waits for a confirmation; what was
	// enforced before still is.
	ReasonRemovalHeld = "RemovalHeld"

	// ReasonUnreachable (False or Unknown): the nodes couldn't be asked.
	ReasonUnreachable = "Unreachable"
)
