package trace

import (
	"fmt"
	"os"
	"path/filepath"
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

// Command is a command line that runs a program under strace from its start, and ends when both have. Only the calls
// of interest stop the program.
func Command(output, calls string, program ...string) []string {
	return append(append(flags(output, calls), "--seccomp-bpf", "--"), program...)
}

// Beside is [Command], but that the process which it starts becomes the program, with strace beside it: [Tracer] finds
// it, and the output is all there once that has ended.
func Beside(output, calls string, program ...string) []string {
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

// Tracer is the process that follows another one; 0: none does.
func Tracer(pid int) int { return number(status(pid), "TracerPid:\t") }

// Followed tells whether all threads of a process are followed.
func Followed(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*", pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, thread := range threads {
		if id, err := strconv.Atoi(filepath.Base(thread)); err != nil || Tracer(id) == 0 && status(id) != "" {
			return false
		}
	}
	return true
}

// Ended tells whether a process has ended, though its parent may not have heard of it.
func Ended(pid int) bool {
	s := status(pid)
	return s == "" || strings.Contains(s, "State:\tZ")
}

// status is what Linux says of a process or a thread; empty if it isn't there.
func status(id int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", id))
	if err != nil {
		return ""
	}
	return string(b)
}

func number(text, key string) int {
	_, after, _ := strings.Cut(text, key)
	line, _, _ := strings.Cut(after, "\n")
	n, err := strconv.Atoi(line)
	if err != nil {
		return 0
	}
	return n
}
