package trace_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/quorate/quorate/test/power/trace"
)

// in hex, as strace -xx writes strings.
func hex(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, `\x%02x`, s[i])
	}
	return b.String()
}

func read(t *testing.T, lines ...string) []*trace.Call {
	t.Helper()
	calls, err := trace.Read(strings.NewReader(strings.Join(lines, "\n") + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

func TestCallsAreReadWithTheirFilesAndBytes(t *testing.T) {
	calls := read(t,
		`12 1796040523.000000100 openat(AT_FDCWD<`+hex("/tmp")+`>, "`+hex("a/b")+`", O_RDWR|O_CREAT|O_CLOEXEC, 0600) = 7<`+hex("/tmp/a/b")+`> <0.000000050>`,
		`13 1796040523.000000200 pwrite64(7<`+hex("/tmp/a/b")+`>, "`+hex("x, ) = (\"y")+`", 10, 4096) = 10 <0.000000010>`,
		`13 1796040523.000000300 writev(9<TCP:[127.0.0.1:45444->127.0.0.1:36937]>, [{iov_base="`+hex("aa")+`", iov_len=2}, {iov_base="`+hex("b")+`", iov_len=1}], 2) = 3 <0.000000010>`,
		`13 1796040523.000000400 fdatasync(7<`+hex("/tmp/a/b")+`>) = -1 EIO (Input/output error) <0.000000010>`,
		`13 1796040523.000000500 --- SIGURG {si_signo=SIGURG} ---`,
		`13 1796040523.000000600 fsync(7<`+hex("/tmp/a/b")+`>)   = 0 <0.000000010>`,
		`13 1796040523.000000700 +++ exited with 0 +++`,
	)
	if len(calls) != 5 {
		t.Fatalf("%d calls", len(calls))
	}
	open, pwrite, writev, failed, synced := calls[0], calls[1], calls[2], calls[3], calls[4]
	if open.File != "/tmp/a/b" || open.Result != 7 || open.Args[0].File != "/tmp" || open.Args[1].Bytes != "a/b" || open.Args[2].Text != "O_RDWR|O_CREAT|O_CLOEXEC" ||
		open.BeganAt != 1796040523000000100 || open.EndedAt != 1796040523000000150 || open.Thread != 12 {
		t.Errorf("%+v", open)
	}
	if pwrite.FirstFile() != "/tmp/a/b" || pwrite.Args[1].Bytes != "x, ) = (\"y" || pwrite.Args[3].Text != "4096" || pwrite.Result != 10 {
		t.Errorf("%+v", pwrite)
	}
	if writev.FirstFile() != "TCP:[127.0.0.1:45444->127.0.0.1:36937]" || writev.Args[1].Bytes != "aab" {
		t.Errorf("%+v", writev)
	}
	if failed.Failed != "EIO" || failed.Done() || failed.Ended == 0 || !synced.Done() {
		t.Errorf("%+v, %+v", failed, synced)
	}
}

func TestCallsThatOverlapAreInTheOrderOfTheirEnds(t *testing.T) {
	calls := read(t,
		`1 5.000000100 fdatasync(3<`+hex("/a")+`> <unfinished ...>`,
		`2 5.000000200 write(4<`+hex("/b")+`>, "`+hex("b")+`", 1) = 1 <0.000000010>`,
		`1 5.000000300 <... fdatasync resumed>) = 0 <0.000000200>`,
		`1 5.000000400 fdatasync(3<`+hex("/a")+`> <unfinished ...>`,
		`2 5.000000500 fsync(4<`+hex("/b")+`> <detached ...>`,
		`3 5.000000600 write(4<`+hex("/b")+`>, "`+hex("c")+`", 1) = ?`,
	)
	var order []string
	for _, e := range trace.Events(calls) {
		order = append(order, fmt.Sprint(e.Name, e.FirstFile(), map[bool]string{true: ")", false: "("}[e.End]))
	}
	want := "fdatasync/a( write/b( write/b) fdatasync/a) fdatasync/a( fsync/b( write/b("
	if got := strings.Join(order, " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if calls[0].EndedAt != 5000000300 || calls[2].Done() || calls[3].Done() || calls[4].Done() {
		t.Errorf("%+v", calls)
	}
}

func TestWhatIsNotUnderstoodIsRefused(t *testing.T) {
	for _, line := range []string{
		`1 5.000000100 write(4<` + hex("/b") + `>, "` + hex("abc") + `"..., 9) = 9 <0.000000010>`,
		`1 5.000000100 writev(4<x>, [{iov_base="` + hex("abc") + `"..., iov_len=9}], 1) = 9 <0.000000010>`,
		`1 5.000000100 <... fdatasync resumed>) = 0 <0.000000200>`,
		`1 5.000000100 fdatasync(3`,
		`1 5.000000100 fdatasync(3) = 0`,
		`1 5.000000100 fdatasync(3) = zero <0.000000010>`,
		`1 5.0001 fdatasync(3) = 0 <0.000000010>`,
		`fdatasync(3) = 0 <0.000000010>`,
		`1 5.000000100 something`,
		`1 5.000000100 write(4, "\x4", 1) = 1 <0.000000010>`,
		``,
	} {
		if _, err := trace.Read(strings.NewReader(line + "\n")); !errors.Is(err, trace.ErrUnreadable) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(`1 5.000000100 write(4<` + hex("/b") + `>, "` + hex("abc") + `", 3) = 3 <0.000000010>` + "\n")
	f.Add("1 5.000000100 fsync(4 <unfinished ...>\n1 5.000000100 <... fsync resumed>) = 0 <0.000000010>\n")
	f.Fuzz(func(t *testing.T, text string) {
		calls, err := trace.Read(strings.NewReader(text))
		if err != nil && !errors.Is(err, trace.ErrUnreadable) {
			t.Error(err)
		}
		trace.Events(calls)
	})
}
