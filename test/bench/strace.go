package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tracer writes down every flush of a disk that the nodes make, as the kernel sees it.
type tracer struct {
	processes []*process
	files     []string
}

// traceSyncs attaches strace to each node.
func (c *cluster) traceSyncs() (t *tracer, err error) {
	t = &tracer{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("count fsyncs: %w", err), t.detach())
		}
	}()
	for _, n := range c.nodes {
		file := filepath.Join(c.dir, n.name+".strace")
		p, err := launch("strace", "strace", nil, "-f", "-ttt", "-e", "trace=fdatasync,fsync", "-o", file, "-p", strconv.Itoa(n.pid()))
		if err != nil {
			return t, err
		}
		t.processes, t.files = append(t.processes, p), append(t.files, file)
		if err := eventually("strace to attach", func() (bool, error) {
			select {
			case <-p.ended:
				return false, fmt.Errorf("strace ended: %s", p.stderr.String())
			default:
				return strings.Contains(p.stderr.String(), "attached"), nil
			}
		}); err != nil {
			return t, err
		}
	}
	return t, nil
}

// detach leaves the nodes alone again.
func (t *tracer) detach() error {
	var errs []error
	for _, p := range t.processes {
		errs = append(errs, p.end(syscall.SIGINT))
	}
	t.processes = nil
	return errors.Join(errs...)
}

// count says how many flushes succeeded between two moments. Detach first: strace writes its file at its ease.
func (t *tracer) count(from, to time.Time) (total uint64, err error) {
	for _, file := range t.files {
		f, err := os.Open(file)
		if err != nil {
			return 0, err
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			if flushed(s.Text(), from, to) {
				total++
			}
		}
		if err := f.Close(); err != nil {
			return 0, err
		}
	}
	return total, nil
}

// flushed reports whether a line of strace is the successful end of a flush between two moments:
//
//	4711 1700000000.000001 fdatasync(9) = 0
//	4711 1700000000.000001 <... fdatasync resumed>) = 0
func flushed(line string, from, to time.Time) bool {
	f := strings.Fields(line)
	if len(f) < 4 || f[len(f)-1] != "0" || f[len(f)-2] != "=" {
		return false
	}
	call := f[2]
	if call == "<..." {
		call = f[3]
	}
	if !strings.HasPrefix(call, "fdatasync") && !strings.HasPrefix(call, "fsync") {
		return false
	}
	at, err := strconv.ParseFloat(f[1], 64)
	return err == nil && at >= seconds1970(from) && at <= seconds1970(to)
}

func seconds1970(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
