package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RateLimitPolicy says which requests it takes, whose allowance they draw on, and how large that is.
//
// It is enforced once its condition Programmed is True for its newest generation.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=ratelimitpolicies,singular=ratelimitpolicy,shortName=rlp,categories=quorate,scope=Namespaced
// +kubebuilder:printcolumn:name="Domain",type=string,JSONPath=`.spec.domain`,description="The domain, where the object names one"
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,description="Whether the newest revision is part of the policy set"
// +kubebuilder:printcolumn:name="Programmed",type=string,JSONPath=`.status.conditions[?(@.type=="Programmed")].status`,description="Whether every partition enforces the newest revision"
// +kubebuilder:printcolumn:name="Partitions",type=string,JSONPath=`.status.enforced.partitions`,description="How many partitions enforce it, of how many"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.domain`
// +kubebuilder:selectablefield:JSONPath=`.spec.quota`
// +kubebuilder:validation:XValidation:rule="(has(self.spec.quota) ? self.spec.quota : self.metadata.name) == (has(oldSelf.spec.quota) ? oldSelf.spec.quota : oldSelf.metadata.name)",fieldPath=".spec.quota",reason=FieldValueForbidden,message="quota can't change: it names the allowance and what was used of it; create another policy"
type RateLimitPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the policy.
	// +required
	Spec RateLimitPolicySpec `json:"spec"`

	// status says what became of the policy. The operator writes it.
	// +optional
	Status RateLimitPolicyStatus `json:"status,omitzero"`
}

// RateLimitPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type RateLimitPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []RateLimitPolicy `json:"items"`
}

// RateLimitPolicySpec is a policy as in a policy file, whose name and namespace are the object's.
//
// +kubebuilder:validation:XValidation:rule="(has(self.key) && size(self.key) > 0) != (has(self.global) && self.global)",fieldPath=".key",message="write either key, the entries that each have their own allowance, or global: true for one allowance for all"
// +kubebuilder:validation:XValidation:rule="!has(self.partitionBy) || self.partitionBy.all(p, has(self.key) && p in self.key)",fieldPath=".partitionBy",message="partitionBy may only name entries of key: one allowance can't be in two partitions"
// +kubebuilder:validation:XValidation:rule="!has(self.key) || !has(self.match) || size(self.match) + size(self.key.filter(k, !(k in self.match))) <= 16",fieldPath=".key",message="match and key together may name 16 entries, the most that a descriptor has: name fewer"
// +kubebuilder:validation:XValidation:rule="!has(self.keepHistory) || self.limits.exists(l, has(l.rollingWindow))",fieldPath=".keepHistory",message="only rolling windows keep history: leave keepHistory out, or add a limit with a rollingWindow"
// +kubebuilder:validation:XValidation:rule="!has(self.tiers) || [self.limits.map(l, l.name)].all(names, self.tiers.all(t, t.amounts.all(n, n in names)))",fieldPath=".tiers",message="amounts of a tier may only name limits of this policy: correct the name, or add the limit"
// +kubebuilder:validation:XValidation:rule="!has(self.overrides) || [self.limits.map(l, l.name)].all(names, self.overrides.all(o, o.amounts.all(n, n in names)))",fieldPath=".overrides",message="amounts of an override may only name limits of this policy: correct the name, or add the limit"
// +kubebuilder:validation:XValidation:rule="!has(self.tiers) || [self.limits.map(l, has(l.tokenBucket), l.name)].all(buckets, self.tiers.all(t, t.amounts.all(n, !has(t.amounts[n].limit) && !has(t.amounts[n].capacity) || has(t.amounts[n].capacity) == (n in buckets))))",fieldPath=".tiers",message="an amount of a tokenBucket is written capacity, one of a window limit"
// +kubebuilder:validation:XValidation:rule="!has(self.overrides) || [self.limits.map(l, has(l.tokenBucket), l.name)].all(buckets, self.overrides.all(o, o.amounts.all(n, !has(o.amounts[n].limit) && !has(o.amounts[n].capacity) || has(o.amounts[n].capacity) == (n in buckets))))",fieldPath=".overrides",message="an amount of a tokenBucket is written capacity, one of a window limit"
// +kubebuilder:validation:XValidation:rule="!has(self.overrides) || self.overrides.all(o, o.when.all(n, has(self.key) && n in self.key))",fieldPath=".overrides",message="when of an override may only name entries of key: a tier goes by any entry"
// +kubebuilder:validation:XValidation:rule="has(self.domain) == has(oldSelf.domain) && (!has(self.domain) || self.domain == oldSelf.domain)",fieldPath=".domain",reason=FieldValueForbidden,message="domain can't change, nor be added or removed: create another policy"
// +kubebuilder:validation:XValidation:rule="sets.equivalent(has(self.key) ? self.key : [], has(oldSelf.key) ? oldSelf.key : [])",fieldPath=".key",reason=FieldValueForbidden,message="key can't change: it is what allowances are counted by; create another policy with another quota"
// +kubebuilder:validation:XValidation:rule="sets.equivalent(has(self.partitionBy) ? self.partitionBy : has(self.key) ? self.key : [], has(oldSelf.partitionBy) ? oldSelf.partitionBy : has(oldSelf.key) ? oldSelf.key : [])",fieldPath=".partitionBy",reason=FieldValueForbidden,message="partitionBy can't change: it says where allowances are kept; create another policy with another quota"
type RateLimitPolicySpec struct {
	// quota names the allowance; with the namespace it is its identity, which outlives this object: created again with
	// the same quota, it goes on with what was used. Default: the object's name. It can't change. Of two objects of
	// a namespace with one quota the older counts, the other is in conflict.
	// +optional
	Quota Name `json:"quota,omitempty"`

	// domain is what gateways ask in. Default: the namespace. It can't change. A namespace may use the domain of its own
	// name, and others that the operator's configuration allows it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9._/-]*[a-z0-9])?$`
	Domain string `json:"domain,omitempty"`

	// match lists entries that a descriptor must have, with these values, besides the entries of key. Default: none. Of the
	// policies of a domain that match a descriptor one wins: that with the most entries here, then the oldest object.
	// +optional
	Match Entries `json:"match,omitempty"`

	// key lists the entries whose values tell one allowance from another: each user has an allowance with
	// key: [user]. It can't change. None only with global: true.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(n, self.exists_one(m, m == n))",message="names an entry twice: name each once"
	Key []EntryName `json:"key,omitempty"`

	// global: true makes one allowance for all, instead of a key.
	// +optional
	Global bool `json:"global,omitempty"`

	// partitionBy lists the entries of key that choose the partition: what is charged together belongs together. Default:
	// key. An empty list: all of the domain in one partition. It can't change.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(n, self.exists_one(m, m == n))",message="names an entry twice: name each once"
	PartitionBy []EntryName `json:"partitionBy,omitzero"`

	// limits must all admit a request; then all are charged, or none.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Limits []Limit `json:"limits"`

	// tiers give other amounts to requests that have some entries. The first that applies counts.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tiers []Tier `json:"tiers,omitempty"`

	// overrides give other amounts to some values of the key's entries. The first that applies counts, and wins over tiers.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Overrides []Override `json:"overrides,omitempty"`

	// costs multiply what a request costs that has some entries. The first that applies counts.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Costs []Cost `json:"costs,omitempty"`

	// keepHistory is how long the log of the rolling windows is kept: at least the longest of them, which is the
	// default, and at most 2160h (90 days). A window that is lengthened later is filled from it.
	// +optional
	KeepHistory Duration `json:"keepHistory,omitempty"`

	// transition is the choice that some changes ask for: Conservative counts what isn't known as used up, FromNow promises
	// the new limit for windows that begin after the change. A change that needs it is not accepted without.
	// +optional
	// +kubebuilder:validation:Enum=Conservative;FromNow
	Transition string `json:"transition,omitempty"`

	// allowAdjust: true lets an administrator correct what was used.
	// +optional
	AllowAdjust bool `json:"allowAdjust,omitempty"`

	// mode is Enforce (the default), or Shadow: decides, counts and reports as if enforced, and always allows.
	// +optional
	// +kubebuilder:validation:Enum=Enforce;Shadow
	Mode string `json:"mode,omitempty"`

	// onUnavailable is what a gateway answers when no leader answers it: Deny (the default) or Allow.
	// +optional
	// +kubebuilder:validation:Enum=Deny;Allow
	OnUnavailable string `json:"onUnavailable,omitempty"`
}

// Name is a name of lower-case letters, digits, '-' and '.', which begins and ends with a letter or digit.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
type Name string

// EntryName is the name of a descriptor's entry: printing ASCII characters without spaces.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=128
// +kubebuilder:validation:Pattern=`^[!-~]+$`
type EntryName string

// EntryValue is the value of a descriptor's entry: characters that can be read.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{2028}\x{2029}\x{feff}\x{fffe}\x{ffff}]*$`
type EntryValue string

// Entries are entries of a descriptor, by name.
//
// +kubebuilder:validation:MaxProperties=16
// +kubebuilder:validation:XValidation:rule="self.all(n, size(n) <= 128 && n.matches('^[!-~]+$'))",message="the names of entries are printing ASCII characters without spaces, 128 at most"
// +kubebuilder:validation:XValidation:rule="self.all(n, type(self[n]) == string && size(bytes(self[n])) <= 1024)",message="every entry needs a value, of 1024 bytes at most: write one, or leave the entry out"
type Entries map[string]EntryValue

// When is what a rule asks of a descriptor: entries with these values, at least one.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=16
// +kubebuilder:validation:XValidation:rule="self.all(n, size(n) <= 128 && n.matches('^[!-~]+$'))",message="the names of entries are printing ASCII characters without spaces, 128 at most"
// +kubebuilder:validation:XValidation:rule="self.all(n, type(self[n]) == string && size(bytes(self[n])) <= 1024)",message="every entry needs a value, of 1024 bytes at most: write one, or leave the entry out"
type When map[string]EntryValue

// Duration is one or more numbers, each with a unit of h, m, s, ms, us (or µs) and ns: 60s, 1h30m, 0.25s. It is above 0
// and at most 2160h (90 days), in whole nanoseconds and at most 24 characters.
//
// +kubebuilder:validation:MinLength=2
// +kubebuilder:validation:MaxLength=24
// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(0*(\d{1,4}(\.(\d{1,11}|\d{11}(5|25|75))0*)?h|\d{1,6}(\.(\d{1,10}|\d{10}5)0*)?m|\d{1,7}(\.\d{1,9}0*)?s|\d{1,10}(\.\d{1,6}0*)?ms|\d{1,13}(\.\d{1,3}0*)?[uµ]s|\d{1,16}(\.0+)?ns))+$') && self.matches('[1-9]') && duration(self) <= duration('2160h') && (duration(self) < duration('2159h59m59s') || !self.matches(r'\.\d{10}'))`,message="write numbers with a unit of h, m, s, ms, us or ns, like 60s, 1h30m or 0.25s: above 0, at most 2160h (90 days)"
type Duration string
