// Package accesslog reads the requests out of logs: of nginx and Apache, Envoy and Istio, AWS load
// balancers and CloudFront, and of CSV, TSV and JSON lines.
//
// Invariants:
//
//   - Every line is a record, a header or comment, blank, or bad with a reason, and the counts add up.
//     Nothing is skipped in silence, and nothing ends a log but its end or an error of reading it.
//   - A line that is too long is skipped in constant memory.
//   - A time is exact, in nanoseconds since 1970, or the line is bad: never rounded but for digits behind
//     the ninth, which are dropped; never read in the wrong unit, zone or column; never 1970 for want of
//     better.
//
// # Formats and their columns
//
//	common      ip user method path status bytes
//	combined    and referer, user_agent, forwarded_for (of what follows between quotes, a list of addresses)
//	vhost       and host, in front of the line, which no request in absolute form changes
//	envoy       ip (Istio's longer format alone) forwarded_for host method path status user_agent bytes; a
//	            line with more parts, or fewer, is bad
//	alb         ip host method path status user_agent bytes
//	cloudfront  ip forwarded_for host method path status user_agent user referer bytes, and every name of #Fields
//	csv, tsv    the names of the header, whatever their case and the spaces around them, or Options.Names;
//	            without either the numbers 1, 2, ...; separated by comma, semicolon, bar or tab
//	json        names in the object, or paths into nested objects, as request.client_ip
//
// A host is also taken from a request in absolute form. In logs of requests "-" and an empty text are
// absent values, in others an empty one. A line in front of which something else was written, as daemons
// put a date there, is none of these formats.
//
// The forwarded addresses of a combined log are those right behind the agent or, where none are there, the
// last list in the line. So a log that has the upstream's address between quotes, too, should have it
// behind theirs, and a line without theirs gives the upstream's.
//
// A first line of CSV is a header unless it holds a time; where Options.Names are given, it must also hold
// one of the names sought. Each row has as many values as the header or, without one, the first row; only
// empty ones may follow. A header may come again, as where files were put behind one another, and then the
// columns go by it. After one that names too little every row is bad, until the next. A column time beside
// one named date may hold times of day.
//
// In JSON a name that is sought, or leads to one, and is in a line twice makes it a bad one.
//
// An address in a log of requests may be a list of them, with commas between, and keeps its port. The agent
// of cloudfront is decoded twice, since some of its logs have it percent-encoded twice; other columns are
// as they are written. After a #Fields line that names too little every line is bad, until the next one.
//
// # Times
//
// The date of the common log format, RFC 3339, the same without a zone where a zone is given, or a number
// of seconds, milliseconds, microseconds or nanoseconds since 1970, with decimals or without. RFC 3339's t
// and z may be small and a space may stand for T; a comma before the fraction, an empty fraction, second
// 60, hours of one digit and days that don't exist are refused. The unit of numbers goes by the size of the
// log's first one that is a time; a later one of another size is bad. A local time that clocks show twice
// or never is bad.
//
// The column of times is Options.TimeColumn, or the first of the usual names that the header has, or that
// the first JSON object with a time has: no other column ever stands in for it.
//
// A Reader is for one goroutine. It reads no clock, and knows of addresses only how they look.
package accesslog
