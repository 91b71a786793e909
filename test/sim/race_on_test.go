//go:build race

package sim

// raced says how to replay what ran under the race detector, which changes the order in which goroutines run.
const raced = " RACE=1"
