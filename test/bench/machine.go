package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// usage is processor time, in seconds.
type usage struct {
	nodes  float64 // the processes that are measured
	client float64 // this one
	busy   float64 // the whole machine
	stolen float64 // kept by its host
	at     time.Time
}

// ticksPerSecond is the kernel's unit in /proc, on every Linux that Go runs on.
const ticksPerSecond = 100

func usageOf(pids []int) (u usage, err error) {
	u.at = time.Now()
	for _, pid := range pids {
		used, err := processorTime(strconv.Itoa(pid))
		if err != nil {
			return u, err
		}
		u.nodes += used
	}
	if u.client, err = processorTime("self"); err != nil {
		return u, err
	}
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return u, err
	}
	u.busy, u.stolen, err = parseMachine(string(text))
	return u, err
}

// processorTime is what a process has used, without its children.
func processorTime(pid string) (float64, error) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, err
	}
	return parseProcess(string(text))
}

// parseProcess reads user and system time from a /proc/PID/stat, behind the command's name, which may hold anything.
func parseProcess(text string) (float64, error) {
	const user, system = 11, 12
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) <= system {
		return 0, fmt.Errorf("/proc/PID/stat has %d fields", len(fields))
	}
	return ticks(fields[user], fields[system])
}

// parseMachine reads the first line of /proc/stat: user nice system idle iowait irq softirq steal.
func parseMachine(text string) (busy, stolen float64, err error) {
	line, _, _ := strings.Cut(text, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0, 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	if busy, err = ticks(f[1], f[2], f[3], f[6], f[7]); err != nil {
		return 0, 0, err
	}
	stolen, err = ticks(f[8])
	return busy, stolen, err
}

func ticks(fields ...string) (seconds float64, err error) {
	for _, f := range fields {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return 0, err
		}
		seconds += float64(n) / ticksPerSecond
	}
	return seconds, nil
}

// load is what a stretch took of the machine, in cores.
type load struct {
	Nodes  float64 `json:"nodes"`
	Client float64 `json:"client"`
	Others float64 `json:"others"` // other processes
	Stolen float64 `json:"stolen"` // by the host
}

// since is what came between an earlier reading and this one.
func (u usage) since(before usage) load {
	seconds := u.at.Sub(before.at).Seconds()
	cores := func(now, then float64) float64 { return round((now-then)/seconds, 2) }
	l := load{Nodes: cores(u.nodes, before.nodes), Client: cores(u.client, before.client), Stolen: cores(u.stolen, before.stolen)}
	l.Others = round(max(0, cores(u.busy, before.busy)-l.Nodes-l.Client), 2)
	return l
}

// syncTime is how long the disk takes to append 4 KiB and flush them: the median of 40.
func syncTime(dir string) (time.Duration, error) {
	f, err := os.CreateTemp(dir, "sync")
	if err != nil {
		return 0, err
	}
	defer func() { _, _ = f.Close(), os.Remove(f.Name()) }() // nothing of it is kept
	page := make([]byte, 4096)
	var took []time.Duration
	for range 40 {
		from := time.Now()
		if _, err := f.Write(page); err != nil {
			return 0, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return 0, err
		}
		took = append(took, time.Since(from))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// onDisk refuses a folder whose file system keeps nothing: there flushing costs nothing and means nothing.
func onDisk(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return err
	}
	if s.Type == unix.TMPFS_MAGIC || s.Type == unix.RAMFS_MAGIC {
		return fmt.Errorf("%s is memory, not a disk: give -dir", dir)
	}
	return nil
}
