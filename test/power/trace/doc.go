// Package trace reads what strace writes about programs: which system call began and ended when, on which file,
// with which bytes. The tests of power loss stand on it: what a program has told the kernel to write and to sync,
// in which order, is seen from outside and assumed nowhere.
//
// It reads the output of `strace -f -xx -y` (or -yy) with absolute times in nanoseconds, written to a file, and
// refuses what it can't be sure of: a line that it doesn't understand, bytes that strace has cut short. One strace
// that follows several processes gives all their calls in one order; a process goes on only after strace has
// written down how its call ended.
package trace
