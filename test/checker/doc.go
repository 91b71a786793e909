// Package checker reads a history of what clients of a cluster saw, and says whether the cluster kept its
// promises. It knows nothing of how the cluster works: it imports no room of the product, and counts everything
// anew, the slow and obvious way.
//
// # A history
//
// A history is a file of JSON lines. Whoever runs clients writes it, with a Writer, as calls are answered; the order
// of the lines doesn't matter. Its times are nanoseconds of the monotonic clock of one machine, so that those of
// several processes compare; decision times are the partitions' own, as answers claim them.
//
//	{"kind":"policies","sent":1,"answered":9,"outcome":"applied","set":1,"limits":[{"quota":"media/conversions","limit":"per-minute","algorithm":"rolling","max":3,"window":60000000000}]}
//	{"kind":"check","client":"c17","id":"6f1d0a52b3c84e97a1b2c3d4e5f60718","quota":"media/conversions","key":"principal=u1","cost":1,"sent":20,"answered":31,"answer":"allow","partition":0,"epoch":1,"time":12,"node":"n1"}
//	{"kind":"used","quota":"media/conversions","key":"principal=u1","sent":90,"answered":99,"partition":0,"epoch":1,"time":80,"limits":[{"limit":"per-minute","used":1}]}
//	{"kind":"state","node":"n1","partition":0,"index":1234,"hash":"9c0de1"}
//	{"kind":"mark","at":50,"name":"kill leader","partition":0}
//
// The fields are those of Policies, Call, Usage, State and Mark; history.go says what each means. What has to be right,
// or a cluster that did nothing wrong is accused:
//
//   - It is whole: all calls of all callers of the keys in it, from the first one on, also those that were given up.
//   - A policy set is written as applied when every partition enforces it, not when it was accepted.
//   - What is not known is written as unknown; a call through a client that may have sent it more than once, and was
//     not allowed, as resent.
//   - All callers of a key are held to the same amounts: where overrides or tiers make them differ, their keys belong to quotas
//     of other names. Policies with a precision, and changes with the transition FromNow, promise something else than is checked here.
//
// # What is checked
//
// Eleven rules (report.go); each function that judges one argues why a cluster that keeps its promises never breaks
// it, whatever is not known of the moments. A violation names the rule, the arithmetic, and the lines that show it. What was looked
// at is counted (Report.Counts): a history without denials says nothing of denials.
//
// What no history of this form shows: a denial that a client remembers for too long claims the time of the one that
// it remembers, which was true. Options.Live forbids such denials.
//
// # By hand
//
//	go run ./test/checker/historycheck -allows 1000 history.jsonl
//	make check-history FILE=history.jsonl
//
// testdata holds small histories that break each rule by one line, and good ones that look as if they did.
package checker
