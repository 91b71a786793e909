package accesslog_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/quorate/quorate/internal/replay/accesslog"
)

// A line that is too long is reported and numbered wherever it stands: first, last, or behind a quote that
// nothing closes.
func TestCSV02LongLinesAreReportedEverywhere(t *testing.T) {
	long := strings.Repeat("y", 2000)
	o := accesslog.Options{Columns: []string{"ip"}, MaxLine: 1000}
	got, r, faults := read(t, "time,ip,ua\n1,a,\"open\n2,b,x\n3,c,"+long+"\n4,d,x\n", o)
	want(t, got, "3 2"+second+" b", "5 4"+second+" d")
	if len(faults) != 2 || faults[0].Line != 2 || faults[1].Line != 4 || r.Counts().Lines != 5 {
		t.Errorf("%+v, %v", r.Counts(), faults)
	}
	got, _, faults = read(t, long+"\n192.0.2.1 - -"+clfTail+"\n"+long, o)
	want(t, got, "2"+clfEpoch+"192.0.2.1")
	if len(faults) != 2 || faults[0].Line != 1 || faults[1].Line != 3 || faults[0].Reason != "too long" {
		t.Errorf("%v", faults)
	}
}

// The bound counts a line's bytes, not those of its end, also where it is longer than what is read at once.
func TestTheLongestLine(t *testing.T) {
	for _, most := range []int{100, 300_000} {
		for _, end := range []string{"\n", "\r\n"} {
			for extra := range 2 {
				row := "1," + strings.Repeat("y", most-2+extra)
				got, _, faults := read(t, "time,ip"+end+row+end+"2,b"+end, accesslog.Options{Columns: []string{"ip"}, MaxLine: most})
				if len(got) != 2-extra || len(faults) != extra {
					t.Errorf("%d bytes of %d before %q: %d rows, %v", len(row), most, end, len(got), faults)
				}
			}
		}
	}
}

// A lone CR in a file whose lines end otherwise would hide a row in another: such a line is bad.
func TestCSV03LineEndsOfSeveralKindsHideNoRow(t *testing.T) {
	got, _, faults := read(t, "time,ip\n1,a\r2,b\n3,\"c\rd\"\n", columns("ip"))
	want(t, got, "3 3"+second+" c\rd")
	if len(faults) != 1 || faults[0].Line != 2 {
		t.Errorf("%v", faults)
	}
	log := "192.0.2.1 - -" + clfTail + "\n192.0.2.2 - -" + clfTail + "\r192.0.2.3 - -" + clfTail + "\n"
	got, _, faults = read(t, log, columns("ip"))
	want(t, got, "1"+clfEpoch+"192.0.2.1")
	if len(faults) != 1 || faults[0].Line != 2 {
		t.Errorf("%v", faults)
	}
}

// Where reading fails, all whole lines before are records, the cut one is none, and the error stays.
func TestReadingThatFails(t *testing.T) {
	broken := errors.New("broken")
	for _, log := range []string{"time,ip\n1,a\n2,b", "time,ip\n1,a\n2,\"b\nx", "time,ip\n1,a\n2," + strings.Repeat("b", 2<<20)} {
		in := io.MultiReader(strings.NewReader(log), iotest.ErrReader(broken))
		r, err := accesslog.NewReader(in, columns("ip"), nil)
		if err != nil {
			t.Fatal(err)
		}
		var rec accesslog.Record
		if err := r.Next(&rec); err != nil || string(rec.Values[0]) != "a" {
			t.Fatalf("%v, %q", err, rec.Values)
		}
		for range 3 {
			if err = r.Next(&rec); !errors.Is(err, broken) || !strings.Contains(err.Error(), "line ") {
				t.Errorf("%.30q: %v", log, err)
			}
		}
	}
	if _, err := accesslog.NewReader(iotest.ErrReader(broken), columns("ip"), nil); !errors.Is(err, broken) {
		t.Errorf("nothing to read: %v", err)
	}
}

// No line of a web log or of CSV costs an allocation.
func TestLinesAllocateNothing(t *testing.T) {
	for name, line := range map[string]string{
		"combined": "192.0.2.1 - -" + clfTail + " \"203.0.113.9, 2001:db8::1\"\n",
		"vhost":    "a.example:80 [2001:db8::1]:443 - -" + clfTail + "\n",
		"csv":      "1700000000.5,192.0.2.1,\"a \"\"b\"\"\"\n",
	} {
		cost := func(n int) float64 {
			log := strings.Repeat(line, n)
			return testing.AllocsPerRun(5, func() {
				r, err := accesslog.NewReader(strings.NewReader(log), accesslog.Options{}, nil)
				if err != nil {
					t.Fatal(err)
				}
				var rec accesslog.Record
				for err == nil {
					err = r.Next(&rec)
				}
				if r.Counts().Bad > 0 {
					t.Fatalf("%s: %+v", name, r.Counts())
				}
			})
		}
		if few, many := cost(100), cost(10_100); many-few > 10 {
			t.Errorf("%s: 10000 lines more cost %v allocations", name, many-few)
		}
	}
}

func packed(members ...string) string {
	var b bytes.Buffer
	for _, m := range members {
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(m))
		_ = z.Close()
	}
	return b.String()
}

func TestGzipIsRecognisedByItsFirstBytes(t *testing.T) {
	whole := packed("time,ip\n1,a\n", "2,b\n")
	got, _, _ := read(t, whole, columns("ip"))
	want(t, got, "2 1"+second+" a", "3 2"+second+" b")
	_, _, _, err := readFrom(strings.NewReader(whole[:len(whole)-3]), columns("ip"))
	if err == nil || !strings.Contains(err.Error(), "cut off") || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("cut off: %v", err)
	}
	damaged := []byte(packed(strings.Repeat("1,a\n", 100_000)))
	damaged[len(damaged)-6] ^= 1
	if _, _, _, err := readFrom(bytes.NewReader(damaged), accesslog.Options{Columns: []string{"2"}}); err == nil {
		t.Error("a wrong checksum is no end")
	}
}

func TestUTF16IsRefused(t *testing.T) {
	if _, _, _, err := readFrom(strings.NewReader("\xff\xfet\x00i\x00m\x00e\x00"), columns("ip")); err == nil || !strings.Contains(err.Error(), "UTF-16") {
		t.Errorf("%v", err)
	}
}
