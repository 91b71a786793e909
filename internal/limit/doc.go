// Package limit holds the admission algorithms: whether one more request of a
// given cost fits into what a key has used, and what it has used once the
// request is admitted.
//
// The package is pure. Time is an argument (int64 nanoseconds of decision time,
// zero or later), amounts and costs are uint64, and every comparison is exact
// integer arithmetic in 64 or 128 bits. Nothing here allocates, blocks or reads
// a clock. Every function is total: a valid Spec, whatever the usage, the time
// and the cost, gets an answer. What would be later than the last
// representable instant is Never. Impossible states (a time that runs backwards inside a log,
// an event without room) panic, because they can only be a fault of the caller.
//
// Deciding and recording are apart. Peek says what would happen and changes
// nothing; a request that several limits must admit is peeked in all of them
// and only then charged: with Charge for the three algorithms that keep a
// State, with Log.Append, once for all rolling limits that read the log.
// A denied request is never recorded.
//
// # Why each algorithm keeps its promise
//
// Rolling window. Promise: the costs of events in any half-open interval of
// length W sum to at most N. Take an interval and let e be the last event in
// it, admitted at time t. Everything of the interval lies in (t-W, t], and e
// was admitted only if the events in (t-W, t], itself included, sum to at most
// N. So it is enough to look back once, at admission. Two things may be unknown
// when looking back: what was forgotten (a marker stands at the newest
// forgotten event, and a window that holds it is full) and what was never seen
// (KnownSince: a window that reaches behind it is full). Both can only refuse.
//
// Token bucket. Promise: the admissions in any interval of length d cost at
// most capacity + refill·d/W. The state is debt, not level: debt falls at refill/W
// per nanosecond, never below zero, and an admission adds its cost only if debt
// stays within the capacity. Over an interval, debt at the end ≥ debt at the start
// + admitted - refill·d/W, and lies within [0, capacity]; the promise follows. Debt
// is exact (whole units less a fraction with denominator W), so nothing
// drifts. Because debt doesn't mention the capacity, one key may be asked with
// different capacities.
//
// Sliding window counter. Windows are [kW, (k+1)W). The window before counts
// with the share of it that the last W nanoseconds still overlap, rounded up to whole
// units. It assumes that the window before was used evenly; where it
// was not, a rolling window may see up to twice the amount less one. It promises
// at most N in any aligned window, no more.
//
// Fixed window. At most N in each [kW, (k+1)W). Up to 2N may fall
// into one W that straddles a boundary: that is its flaw.
//
// Time that steps back counts as the newest time already recorded, so
// no step back refills or reopens anything.
package limit
