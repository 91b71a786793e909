package trace

import (
	"io"
	"os"
	"strconv"
	"strings"
)

// Package is the Debian package that strace comes with.
const Package = "strace"

// Changes are the calls by which programs change files and folders, make that durable, and speak. The rest of what
// could change files is among them, lest it happen unseen.
const Changes = "trace=openat,write,pwrite64,ftruncate,fsync,fdatasync,mkdirat,renameat,linkat,unlinkat," +
	"open,creat,rename,renameat2,link,symlink,symlinkat,unlink,mkdir,rmdir,truncate,pwritev,pwritev2,writev," +
	"fallocate,copy_file_range,sendfile,splice,sync_file_range,msync,sync,syncfs"

// Command is a command line that runs a program under strace from its start. The process that it starts becomes the
// program, with strace beside it; strace has written all of it down once the output says how it ended. Only the
// calls of interest stop the program.
func Command(output, calls string, program ...string) []string {
	return append(append(flags(output, calls), "-D", "--seccomp-bpf", "--"), program...)
}

// Attach is a command line that follows processes that run, until it is interrupted.
func Attach(output, calls string, pids ...int) []string {
	command := flags(output, calls)
	for _, pid := range pids {
		command = append(command, "-p", strconv.Itoa(pid))
	}
	return command
}

func flags(output, calls string) []string {
	return []string{Package, "-f", "-q", "-xx", "-yy", "-s", "33554432", "-o", output, "-e", calls, "-e", "signal=none",
		"--absolute-timestamps=format:unix,precision:ns", "--syscall-times=ns"}
}

// Ended tells whether the output says how the process with this id ended: strace has written all that it did.
func Ended(output string, pid int) bool {
	f, err := os.Open(output)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // it was only read
	const enough = 4096
	if info, err := f.Stat(); err == nil {
		_, _ = f.Seek(max(0, info.Size()-enough), io.SeekStart) // or all of it is read
	}
	end, err := io.ReadAll(f)
	lines := strings.Split(strings.TrimSpace(string(end)), "\n")
	last := lines[len(lines)-1]
	return err == nil && strings.HasPrefix(last, strconv.Itoa(pid)+" ") && strings.Contains(last, " +++ ")
}
