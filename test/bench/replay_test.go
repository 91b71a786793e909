package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// BenchmarkReplay runs quotactl replay on logs of a million lines and of fifty million rows. The targets
// are 5 s and 300 MB for the one, and --memory's default of 300 MB for the other.
func BenchmarkReplay(b *testing.B) {
	quotactl := build(b)
	b.Run("a million combined lines", func(b *testing.B) {
		path := filepath.Join(b.TempDir(), "access.log")
		writeCombined(b, path, 1_000_000)
		for b.Loop() {
			took, bytes := replay(b, quotactl, nil, 1_000_000, path, "--limit", "10", "--window", "60s", "--key", "ip")
			against(b, took.Seconds(), "seconds", 5)
			against(b, float64(bytes)/1e6, "MB", 300)
		}
	})
	b.Run("fifty million unsorted rows", func(b *testing.B) {
		for b.Loop() {
			in, out := io.Pipe()
			go func() { _ = out.CloseWithError(writeUnsorted(out, 50_000_000)) }()
			took, bytes := replay(b, quotactl, in, 50_000_000, "--limit", "10", "--window", "60s", "--key", "user")
			b.ReportMetric(took.Seconds(), "seconds")
			against(b, float64(bytes)/1e6, "MB", 300)
		}
	})
}

// against prints a figure beside its target.
func against(b *testing.B, value float64, unit string, target float64) {
	b.ReportMetric(value, unit)
	verdict := "met"
	if value > target {
		verdict = "MISSED"
	}
	b.Logf("%.1f %s, target %g: %s", value, unit, target, verdict)
}

func build(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "quotactl")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/quotactl")
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return path
}

// replay runs the program, which must decide so many requests, and returns how long it took and the most
// memory that it had.
func replay(b *testing.B, quotactl string, in io.Reader, requests int64, args ...string) (took time.Duration, bytes int64) {
	b.Helper()
	cmd := exec.Command(quotactl, append([]string{"replay", "-o", "json"}, args...)...)
	cmd.Stdin, cmd.Stderr = in, os.Stderr
	start := time.Now()
	out, err := cmd.Output()
	took = time.Since(start)
	if err != nil {
		b.Fatal(err)
	}
	var s struct{ Requests, Bad int64 }
	if err := json.Unmarshal(out, &s); err != nil || s.Requests != requests || s.Bad > 0 {
		b.Fatalf("%d requests and %d bad lines, want %d and 0: %v", s.Requests, s.Bad, requests, err)
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		b.Fatal("this system doesn't say how much memory a process had")
	}
	return took, usage.Maxrss * 1024
}

func writeCombined(b *testing.B, path string, lines int) {
	b.Helper()
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	w, rng := bufio.NewWriterSize(f, 1<<20), rand.New(rand.NewPCG(1, 1))
	start := time.Unix(1_700_000_000, 0).UTC()
	for i := range lines {
		at := start.Add(time.Duration(i/300) * time.Second).Format("02/Jan/2006:15:04:05 -0700")
		_, _ = fmt.Fprintf(w, "192.0.%d.%d - - [%s] \"GET /path/%d?q=1 HTTP/1.1\" 200 %d \"https://www.example.com/from\" "+
			"\"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0 Safari/537.36\"\n",
			rng.IntN(64), rng.IntN(256), at, i%1000, rng.IntN(100_000))
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
}

// writeUnsorted writes rows whose times are in no order at all, over 58 days.
func writeUnsorted(out io.Writer, rows int) error {
	w, rng := bufio.NewWriterSize(out, 1<<20), rand.New(rand.NewPCG(2, 2))
	if _, err := w.WriteString("time,user\n"); err != nil {
		return err
	}
	var line []byte
	for range rows {
		line = strconv.AppendInt(line[:0], 1_700_000_000_000+rng.Int64N(5_000_000_000), 10)
		line = append(line, ",user-"...)
		line = strconv.AppendInt(line, rng.Int64N(10_000), 10)
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return w.Flush()
}
