// Package report shows what a replay came to: as text for people, as JSON, as one HTML file; each single
// decision as a line of JSON; and the way there as a bar on a terminal.
//
// What holds for all of them:
//
//   - Numbers add up where they are read. Every line of the input is a request, bad, blank or a header,
//     and the report writes this sum out. A share is never rounded to nothing or to all.
//   - What a log holds is hostile. People are shown no control character, no bidirectional override and
//     no byte outside UTF-8 as itself, but as Go escapes; the HTML file contains no script and allows none.
//   - JSON is exact: integers stay integers, times are RFC 3339 in UTC with nanoseconds. Only bytes outside
//     UTF-8, which JSON can't carry, each become U+FFFD; so two keys that differ in such bytes alone look alike.
//   - A denial by a Shadow policy is always marked as one: live, that request passes.
//   - The same summary gives the same bytes: nothing here reads a clock, an environment or a terminal. Whether
//     there is a terminal, and what time it is, the caller says.
//
// It is called by quotactl.
package report
