// Package replay decides the requests of access logs as a cluster with a given policy set would have.
//
// It is the state machine of the nodes, without its log: rows are read (accesslog), put in the order of
// their times (order), resolved (policy) and decided (fsm) one after another; a row's decision time is
// its own time since 1970. What comes out is a Summary and, if asked for, every single decision.
//
// Nothing is lost in silence: every line of the input is a request, a header, blank, or bad with a
// reason, and these add up.
//
// It is called by quotactl and reads no clock.
package replay
