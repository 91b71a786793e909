// Package power is about loss of power: real programs on real files, of which strace has written down what they told
// the kernel to write and to sync, and what a computer may find of that when it starts again. trace reads what strace
// wrote; medium makes the disks that can be found. A process that is killed proves none of this: the kernel keeps what
// it had written.
package power
