package trace

import (
	"context"
	"os/exec"
	"strconv"
)

// Package is the Debian package that strace comes with.
const Package = "strace"

// Changes are the calls by which programs change files and folders, make that durable, and speak. The rest of what
// could change files is among them, lest it happen unseen.
const Changes = "trace=openat,write,pwrite64,ftruncate,fsync,fdatasync,mkdirat,renameat,linkat,unlinkat," +
	"open,creat,rename,renameat2,link,symlink,symlinkat,unlink,mkdir,rmdir,truncate,pwritev,pwritev2,writev," +
	"fallocate,copy_file_range,sendfile,splice,sync_file_range,msync,sync,syncfs"

// Run is a command that runs a program from its start under strace, which writes to a file. Only the calls of
// interest stop it.
func Run(ctx context.Context, output, calls string, program ...string) *exec.Cmd {
	args := append(flags(output, calls), "--seccomp-bpf", "--")
	return exec.CommandContext(ctx, Package, append(args, program...)...)
}

// Attach is a command that follows processes until it is interrupted.
func Attach(ctx context.Context, output, calls string, pids ...int) *exec.Cmd {
	args := flags(output, calls)
	for _, pid := range pids {
		args = append(args, "-p", strconv.Itoa(pid))
	}
	return exec.CommandContext(ctx, Package, args...)
}

func flags(output, calls string) []string {
	return []string{"-f", "-qq", "-xx", "-yy", "-s", "33554432", "-o", output, "-e", calls, "-e", "signal=none",
		"--absolute-timestamps=format:unix,precision:ns", "--syscall-times=ns"}
}
