// Package clock measures elapsed time for decisions, and nothing else. A window needs to know how
// much time has passed, not which date it is, so the wall clock is evidence for nothing here.
//
// A partition's decision time is integer nanoseconds from zero, carried by its log. This package
// holds the arithmetic around it:
//
//   - [Accumulator]: elapsed time of one process, never faster than real time;
//   - [Held] and [TermClock]: the time of a new term's first entry, and the stamps after it;
//   - [Lease]: whether a majority answered the leader recently enough to answer from memory;
//   - [Source]: where readings come from: [System] in production, [Manual] in tests.
//
// Invariants:
//
//   - Between two entries decision time never advances more than real time, as long as one of the
//     two system clocks runs within 500 ppm; exact to the 2 ns that integer readings can hide.
//     Whatever can't be known counts as no time at all. So a failover, a freeze or a restart can
//     only stretch windows, never shrink them.
//   - Nothing read by an earlier process, and nothing that an earlier term's clock said beyond what
//     the log holds, ever enters a stamp.
//   - Arithmetic saturates; nothing wraps.
//
// The leader loop of a partition calls it. It never learns of Raft, of entries or of wall clocks,
// and must never be asked what time of day it is.
package clock
