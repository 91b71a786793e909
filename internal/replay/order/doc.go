// Package order sorts rows by time, stably, in bounded memory: what doesn't fit goes to a temporary file
// as sorted runs, which are merged in the end.
//
// Invariants:
//
//   - Rows come out in the order of their times, and rows of one time in the order in which they went in.
//   - Either every row that went in comes out, once and byte for byte, or there is an error. Every part
//     of a run is checked as it is read back: a disk that forgets, or answers with the bytes of another
//     place, is an error and never a wrong row.
//   - A Sorter holds at most Options.Memory bytes: rows, their index, and buffers (and some hundred bytes
//     for each run and block, which is about a hundredth). A row that is too large for that is written
//     past the memory; while it is merged two such rows may be held.
//   - Nothing is left behind on disk. Where the system allows, the file loses its name as soon as it is
//     open, so its space comes back even if the process is killed.
//
// How: rows lie one after another in large blocks, and an index of 16 bytes a row (time, place) in chunks,
// so the garbage collector has nothing to follow and nothing is ever copied to grow. A chunk is sorted by
// itself, within the cache; then chunks are merged, as runs on disk are. Chunks, and runs, that don't
// overlap in time are read one after another, so what was in order already is never compared.
// Everything is made of one unit: a block, a chunk, a frame of a run.
//
// The replay calls it between reading logs and deciding rows. It belongs to one goroutine, knows nothing
// of what a row holds, and must never drop one.
package order
