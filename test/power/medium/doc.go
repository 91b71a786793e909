// Package medium is what a disk may hold after power is lost. It follows the system calls of a program as a trace
// shows them, keeps apart what was synced and what only the kernel's memory has, and makes of it, for any moment, the
// folders that a computer may find when it starts again.
//
// It assumes the least that POSIX promises, which is less than any Linux file system does:
//
//   - What was written to a file before an fsync or fdatasync of it began is on the disk when that has returned. Of the
//     rest, each page of 4 KiB is there as it was after any of the writes to it, or as it was before all of them; one
//     or several may be torn: part old, part new. The file's size is any that it had since.
//   - A name in a folder (made, linked, renamed, removed) is on the disk once an fsync of that folder has returned,
//     however well the file itself is synced. Of the rest, any may have been done and any not; a rename within one
//     folder is whole.
//   - What one process can't see of a file, pages that it maps and changes, isn't followed; nor is preallocation.
//
// A disk that lies is one whose syncs return and do nothing: Ignore says which.
package medium
