package replay

// Decision is what became of one row. Its strings and bytes are good until the next one.
type Decision struct {
	Input int   // place in Summary.Inputs
	Line  int64 // in that input, from 1
	Time  int64 // decision time: nanoseconds since 1970
	// Key names what was charged, as Offender.Key; empty where no policy matched.
	Key     string
	Policy  string // namespace/name; empty where none matched
	Allowed bool
	// RetryAfter is the time after which a denied cost fits, in whole seconds, rounded up; -1 where it
	// is allowed, or never fits.
	RetryAfter int64
	// Remaining and Limit are the limit's units; neither says anything where Unlimited, or without a
	// policy.
	Remaining, Limit uint64
	LimitName        string
	Unlimited        bool
	Shadow           bool // it is a Shadow policy that denies: live, the request passes
}
