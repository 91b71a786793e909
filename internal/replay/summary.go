package replay

// Summary is what a replay came to.
type Summary struct {
	Inputs []Input
	// Every line is one of these: Lines = Requests + Bad + Blank + Header. Header counts header and
	// comment lines; Requests were decided: Requests = Allowed + Denied.
	Lines, Requests, Allowed, Denied, Bad, Blank, Header int64
	// BadBy says why lines were bad, most frequent first.
	BadBy []Count
	// Unmatched are the requests that no policy matched; they are among Allowed or Denied, as their
	// domain says.
	Unmatched int64
	// ShadowDenied are the denied requests that a Shadow policy alone denies: live, they pass.
	ShadowDenied int64
	// From and To are the first and the last decision time, in nanoseconds since 1970; 0 without requests.
	From, To int64
	// Policies say what each policy decided, in the order of the set.
	Policies []PolicySummary
	// Top are the keys with the most denied requests, most first; at most what was asked for.
	Top []Offender
	// TopExact: no key was forgotten for want of memory; else the counts of Top are lower bounds.
	TopExact bool
	Series   Series
	// Against is the comparison with another set, nil without one.
	Against *Comparison
}

// Input is one file that was read.
type Input struct {
	Name   string // "-" is standard input
	Format string
}

// Count is how often something was so.
type Count struct {
	Name string
	N    int64
}

// PolicySummary is what one policy decided of the requests that it won.
type PolicySummary struct {
	Namespace, Name  string
	Shadow           bool
	Requests, Denied int64
}

// Offender is a key whose requests were denied.
type Offender struct {
	// Key names the key: the value of its one entry, or name=value of each, with commas between.
	Key              string
	Policy           string
	Requests, Denied int64
}

// Series counts requests over time, in slices of equal length.
type Series struct {
	Start, Step     int64 // nanoseconds since 1970, and of one slice
	Allowed, Denied []int64
}

// Comparison is what another set would have done with the same requests.
type Comparison struct {
	Allowed, Denied int64 // by the other set
	// NewlyDenied were allowed by the other set and are denied by this one; NewlyAllowed the reverse.
	NewlyDenied, NewlyAllowed int64
	// Top are the keys with the most newly denied requests, most first; Denied counts these.
	Top []Offender
}
