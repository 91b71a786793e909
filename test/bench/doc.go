// Command bench measures whole programs: real nodes as users run them, asked by one client process, and what
// people use instead beside them. `make bench` runs all of it; docs/benchmarks.md says what each figure means.
//
// It starts every process that it measures, on loopback addresses and with folders of its own, and ends them.
// The strict figures count only if the cluster agrees with the client: each replica has applied exactly the
// admissions that callers were told of, no check failed, and disks were flushed at least twice for each entry.
//
// The tests in this folder look at the bench itself, and measure quotactl's replay.
package main
