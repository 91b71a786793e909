// Package checker reads a history of what clients of a cluster saw, and says whether the cluster kept its
// promises. It knows nothing of how the cluster works: it imports no room of the product, and counts everything
// anew, the slow and obvious way.
//
// A history is a file of JSON lines (history.go). Whoever runs clients writes it, with a Writer, as calls are
// answered; the order of the lines doesn't matter. Its times are nanoseconds of the monotonic clock of one
// machine, so that those of several processes compare.
package checker
