// Package sim runs a partition of three replicas, real Raft and real state machine, in virtual time, and lets
// everything go wrong around it: messages are lost, delayed, doubled and overtaken, links are cut, also one way;
// replicas die within any call of their stores, disks are slow, hang and fail, power is lost by all at once;
// clocks run fast and slow, jump and stop. Clients ask meanwhile, repeat themselves, and write down what they were
// told. In the end the history is judged, by package checker and by what the replicas hold.
//
// A run is a function of its seed. Every fault is drawn from a hash of the seed, of where it happens (a link, a
// disk, a client) and of a number that counts there, so that one more message on one link changes nothing
// elsewhere; and the order in which goroutines run is the same for one seed where the process was set up for it
// (package exact). So a seed that failed fails again.
//
// What is simulated is the world, never the product:
//
//   - network.go: a transport whose messages have a fate
//   - disk.go, image.go, snapshots.go: what a disk holds, and what a loss of power takes of it
//   - source.go: clocks
//   - machine.go, process.go: machines and their processes, which die and are started again
//   - trouble.go: what goes wrong when
//   - client.go: who asks
//   - oracle.go: what must be so in the end
//
// Breaks (options.go) are worlds in which a promise can't be kept, each of which must be found out: a simulation
// that finds nothing in them proves nothing elsewhere.
package sim
