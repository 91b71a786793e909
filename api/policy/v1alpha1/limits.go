package v1alpha1

// Limit is a limit with one algorithm.
//
// +kubebuilder:validation:XValidation:rule="[has(self.rollingWindow), has(self.tokenBucket), has(self.slidingWindowCounter), has(self.fixedWindow)].exists_one(x, x)",message="a limit has exactly one of rollingWindow, tokenBucket, slidingWindowCounter, fixedWindow"
type Limit struct {
	// name is what tiers, overrides and answers call the limit.
	// +required
	Name Name `json:"name"`

	// rollingWindow never admits more than limit within any window's length.
	// +optional
	RollingWindow *RollingWindow `json:"rollingWindow,omitempty"`

	// tokenBucket admits capacity at once, and refills steadily.
	// +optional
	TokenBucket *TokenBucket `json:"tokenBucket,omitempty"`

	// slidingWindowCounter counts this window and a share of the one before: little memory, approximate.
	// +optional
	SlidingWindowCounter *Window `json:"slidingWindowCounter,omitempty"`

	// fixedWindow counts from zero in each window, so twice its limit fits around a boundary.
	// +optional
	FixedWindow *Window `json:"fixedWindow,omitempty"`
}

// RollingWindow is a log of what was admitted.
//
// +kubebuilder:validation:XValidation:rule="self.limit <= 100000 || has(self.precision)",fieldPath=".limit",message="a limit above 100000 needs a precision: add one, at most a tenth of the window"
type RollingWindow struct {
	// limit is how much is admitted within window; 0 admits nothing.
	// +required
	// +kubebuilder:validation:Minimum=0
	Limit int64 `json:"limit"`

	// window is the time.
	// +required
	Window Duration `json:"window"`

	// precision is the time within which admitted requests may merge to the later one, so that the log is shorter: at most
	// a tenth of the window. All rolling windows of a policy have the same. Default: none merge.
	// +optional
	Precision Duration `json:"precision,omitempty"`
}

// Window is an amount for a time.
type Window struct {
	// limit is how much is admitted within window; 0 admits nothing.
	// +required
	// +kubebuilder:validation:Minimum=0
	Limit int64 `json:"limit"`

	// window is the time.
	// +required
	Window Duration `json:"window"`
}

// TokenBucket is an amount that is spent at once and comes back over time, within 2160h (90 days) from empty to full.
type TokenBucket struct {
	// capacity is how much is admitted at once; 0 admits nothing.
	// +required
	// +kubebuilder:validation:Minimum=0
	Capacity int64 `json:"capacity"`

	// refill is how much comes back per period.
	// +required
	// +kubebuilder:validation:Minimum=1
	Refill int64 `json:"refill"`

	// period is the time in which refill comes back.
	// +required
	Period Duration `json:"period"`
}

// Tier gives other amounts to requests that have all entries of when.
//
// +kubebuilder:validation:XValidation:rule="self.amounts.all(n, !has(self.amounts[n].refill) && !has(self.amounts[n].period))",fieldPath=".amounts",message="a tier can't change refill or period, which must be the same for all checks of a key: an override can"
type Tier struct {
	// when lists entries that a request must have, with these values. Any entry may be named.
	// +required
	When When `json:"when"`

	// amounts are those that change, by the name of their limit. A bucket's refill and period can't.
	// +required
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	Amounts map[string]Amount `json:"amounts"`
}

// Override gives other amounts to keys that have all entries of when.
type Override struct {
	// when lists entries of key, with their values.
	// +required
	When When `json:"when"`

	// amounts are those that change, by the name of their limit.
	// +required
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	Amounts map[string]Amount `json:"amounts"`
}

// Amount stands in place of the amount of a limit.
//
// +kubebuilder:validation:XValidation:rule="[has(self.unlimited) && self.unlimited, has(self.limit), has(self.capacity)].exists_one(x, x)",message="write one of limit (of a window), capacity (of a tokenBucket) and unlimited: true"
// +kubebuilder:validation:XValidation:rule="has(self.capacity) || !has(self.refill) && !has(self.period)",message="refill and period go with the capacity of a tokenBucket: add capacity, or leave them out"
type Amount struct {
	// unlimited: true admits everything. What is admitted is counted all the same.
	// +optional
	Unlimited bool `json:"unlimited,omitempty"`

	// limit is the amount of a window.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Limit *int64 `json:"limit,omitempty"`

	// capacity is the amount of a tokenBucket.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Capacity *int64 `json:"capacity,omitempty"`

	// refill is how much comes back to a tokenBucket per period. Default: as much as the limit says.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Refill int64 `json:"refill,omitempty"`

	// period is the time in which refill comes back. Default: the limit's.
	// +optional
	Period Duration `json:"period,omitempty"`
}

// Cost multiplies the cost of requests that have all entries of when.
type Cost struct {
	// when lists entries that a request must have, with these values. Any entry may be named.
	// +required
	When When `json:"when"`

	// cost is what the request's own cost, or 1, is multiplied by.
	// +required
	// +kubebuilder:validation:Minimum=1
	Cost int64 `json:"cost"`
}
