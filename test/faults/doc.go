// Package faults does harm to clusters of real processes while hundreds of callers ask, and has test/checker judge
// what they saw. It holds tests only.
//
// A cell is one fault in one phase: steady load, policies being edited all the while, or a follower taking in a
// snapshot. A fault has to prove that it took place, by a figure of its own, and a cell also fails where fewer than
// 1,000 checks were allowed or anything was violated.
//
//	go test ./test/faults         a smoke of two cells
//	make faults                   every fault once, in a phase that the seed draws
//	make faults SEED=7            the same choice and order again
//	make faults CELL=freeze       cells whose name has that in it, in every phase that makes sense
//	make soak HOURS=2             round after round with new seeds
//	FAULTS=matrix go test ...     every fault in every phase
//
// REPORT=file.json writes what the table says as JSON, REPORT=file.md as Markdown. HISTORIES=folder keeps all
// histories, not only those of cells that failed.
package faults
