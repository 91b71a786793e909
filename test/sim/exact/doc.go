// Package exact makes a process run its goroutines in the same order every time, so that a simulation that is drawn
// from a seed can be replayed.
//
// With GOMAXPROCS=1, virtual time and all input drawn from a seed, what remains are the runtime's own draws: which of
// several ready channels a select takes, where the iteration of a map begins, which of two timers of the same
// instant comes first; and that the runtime preempts a goroutine after 10 ms of real time, which come sooner on a
// busy machine. The runtime draws from two generators of the thread, and preempts none that says it must not be.
// There is no switch for any of that, so [Begin] finds the three fields in the thread's own memory, by what calling
// the generators changes there, and sets them. Where it doesn't find exactly what it looks for, it says so and
// touches nothing.
//
// It is for tests alone. Between Begin and [Run.End] no garbage is collected, which would move work to other
// goroutines, and a panic can't be recovered from: the runtime ends the process.
package exact
