package accesslog_test

import (
	"encoding/csv"
	"fmt"
	"math/big"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/quorate/quorate/internal/replay/accesslog"
)

var samples = []string{
	"time,ip,host\n1,192.0.2.1,a.example\n2,\"a, b\",\"say \"\"hi\"\"\"\n",
	"ts;ip\n2021-10-31T02:59:59+02:00;x\n",
	"time\tip\n1700000000123\t::1\n",
	`192.0.2.1 - - [07/Dec/2016:11:05:07 +0100] "GET / HTTP/1.1" 200 1 "-" "a \"b\"" "198.51.100.5"` + "\n",
	`www.example.com:443 2001:db8::1 - frank [07/Dec/2016:11:05:06 +0100] "GET /x HTTP/1.1" 200 5 "-" "agent"` + "\n",
	`[2016-04-15T20:17:00.310Z] "POST /api HTTP/2" 204 - 154 0 226 100 "203.0.113.9" "agent" "id" "locations" "tcp://10.0.2.1:80"` + "\n",
	`http 2018-07-02T22:23:00.186641Z app/lb 192.0.2.1:2817 - -1 -1 -1 503 - 34 366 "GET http://www.example.com:80/ HTTP/1.1" "curl" - - - "-" "-" "-" 0 2018-07-02T22:22:48.364000Z "forward" "-" "-"` + "\n",
	"#Version: 1.0\n#Fields: date time c-ip cs(User-Agent)\n2019-12-04\t21:02:31\t192.0.2.100\tMozilla%2520X\n",
	`{"ts":1700000000.5,"ip":"192.0.2.1","a":{"b":"c"}}` + "\n",
	"\xef\xbb\xbftime,ip\r1,a\r",
	"time,ip\n1,\"open\n2,b\n",
}

// Whatever the bytes are: the counts add up, times are not negative, lines ascend, nothing panics, and how
// the bytes come in pieces changes nothing.
func FuzzReader(f *testing.F) {
	formats := append(accesslog.Formats(), "auto")
	for _, s := range samples {
		f.Add(s, byte(len(formats)-1))
	}
	for i := range formats {
		f.Add(samples[i], byte(i))
	}
	f.Fuzz(func(t *testing.T, log string, format byte) {
		o := accesslog.Options{
			Format: formats[int(format)%len(formats)], MaxLine: 1000,
			Columns: []string{"ip", "a.b", "host"}, Optional: []string{"ip", "a.b", "host"},
		}
		got, r, faults, err := readFrom(strings.NewReader(log), o)
		if err != nil && strings.Contains(err.Error(), "add up") {
			t.Fatal(err)
		}
		again, _, faultsAgain, errAgain := readFrom(iotest.OneByteReader(strings.NewReader(log)), o)
		if !slices.Equal(got, again) || !slices.Equal(faults, faultsAgain) || (err == nil) != (errAgain == nil) {
			t.Fatalf("byte by byte it is another log:\n%v %v %v\n%v %v %v", got, faults, err, again, faultsAgain, errAgain)
		}
		last := int64(0)
		for _, words := range got {
			var line, at int64
			if _, err := fmt.Sscanf(words, "%d %d", &line, &at); err != nil || at < 0 || line <= last {
				t.Fatalf("record %q after line %d", words, last)
			}
			last = line
		}
		for _, fault := range faults {
			if strings.ContainsAny(fault.Detail, "\n\r\x1b\x00") || fault.Line < 1 {
				t.Fatalf("%+v", fault)
			}
		}
		if r != nil && int64(len(faults)) != r.Counts().Bad {
			t.Fatalf("%d faults told, %d counted", len(faults), r.Counts().Bad)
		}
	})
}

// CSV is what encoding/csv takes for it, for rows without spaces at the ends of values, which are ignored
// here.
func TestCSVAgreesWithTheStandardLibrary(t *testing.T) {
	const pieces = "abc,;\"\"\n\r|x0"
	rng := rand.New(rand.NewPCG(3, 3))
	for range 500 {
		var want []string
		var b strings.Builder
		w := csv.NewWriter(&b)
		_ = w.Write([]string{"time", "v"})
		for i := range 1 + rng.IntN(5) {
			var v strings.Builder
			v.WriteByte('v')
			for range rng.IntN(8) {
				v.WriteByte(pieces[rng.IntN(len(pieces))])
			}
			v.WriteByte('v')
			_ = w.Write([]string{fmt.Sprint(i), v.String()})
			want = append(want, v.String())
		}
		w.Flush()
		log := b.String()
		var got []string
		words, _, faults := read(t, log, columns("v"))
		for _, record := range words {
			_, value, _ := strings.Cut(record, " ")
			_, value, _ = strings.Cut(value, " ")
			got = append(got, value)
		}
		if strings.ContainsRune(log, '\r') { // line breaks in values come out as \n
			for i := range want {
				want[i] = strings.ReplaceAll(want[i], "\r\n", "\n")
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q\ngot  %q\nwant %q\n%v", log, got, want, faults)
		}
	}
}

// Instants written in every form are read back to the nanosecond.
func TestTimesAreReadBackExactly(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range 2000 {
		ns := rng.Int64N(1 << 62)
		if rng.IntN(2) == 0 {
			ns = ns / 1e9 * 1e9
		}
		at := time.Unix(0, ns).In(time.FixedZone("", (rng.IntN(28*60)-14*60)*60))
		for form, want := range map[string]int64{
			at.Format("2006-01-02T15:04:05.999999999Z07:00"): ns,
			at.Format("2006-01-02 15:04:05.000000000Z07:00"): ns,
			at.Format("02/Jan/2006:15:04:05 -0700"):          ns / 1e9 * 1e9,
		} {
			got, _, _ := read(t, "time,v\n"+form+",x\n", columns("v"))
			if len(got) != 1 || got[0] != fmt.Sprintf("2 %d x", want) {
				t.Fatalf("%s: got %v, want %d", form, got, want)
			}
		}
	}
}

// rfc3339 is the form without what the standard library lets through beside it: commas, hours of one digit.
var rfc3339 = regexp.MustCompile(`(?i)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// FuzzTime: RFC 3339 is read, as the standard library reads it; decimals are what exact arithmetic makes of
// them.
func FuzzTime(f *testing.F) {
	for _, s := range []string{"2018-06-15T12:30:59Z", "2017-04-09t10:38:00z", "1700000000.123456789123", "0", "9223372036.854775807", "-0", "2020-02-29T23:59:59.5+14:00", "00000000000000000000001", "1.", ".5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsAny(text, ",;|\t\"\n\r\x00 ") {
			return
		}
		got, _, err := func() ([]string, *accesslog.Reader, error) {
			words, r, _, err := readFrom(strings.NewReader("time,v\n"+text+",x\n"), accesslog.Options{Columns: []string{"v"}})
			return words, r, err
		}()
		at, parseErr := time.Parse(time.RFC3339Nano, strings.ToUpper(text))
		if err != nil || len(got) != 1 {
			inRange := at.Year() >= 1971 && at.Year() <= 2261
			if err == nil && parseErr == nil && inRange && rfc3339.MatchString(text) {
				t.Errorf("%q is a time, and refused", text)
			}
			return
		}
		var line, ns int64
		if _, err := fmt.Sscanf(got[0], "%d %d", &line, &ns); err != nil {
			t.Fatal(err)
		}
		if parseErr == nil && at.UnixNano() != ns {
			t.Errorf("%q: %d, want %d", text, ns, at.UnixNano())
		}
		if strings.Trim(text, "0123456789.") != "" {
			return
		}
		value, ok := new(big.Rat).SetString(strings.TrimSuffix(text, "."))
		if !ok {
			t.Fatalf("%q is read as %d", text, ns)
		}
		whole := new(big.Int).Quo(value.Num(), value.Denom())
		unit := int64(1e9)
		for _, limit := range []int64{1e11, 1e14, 1e17} {
			if whole.Cmp(big.NewInt(limit)) >= 0 {
				unit /= 1000
			}
		}
		value.Mul(value, new(big.Rat).SetInt64(unit))
		if exact := new(big.Int).Quo(value.Num(), value.Denom()); exact.Cmp(big.NewInt(ns)) != 0 {
			t.Errorf("%q: %d, want %s", text, ns, exact)
		}
	})
}

func BenchmarkReader(b *testing.B) {
	for i, name := range map[int]string{3: "combined", 0: "csv", 8: "json"} {
		log := strings.Repeat(samples[i], 1)
		if i == 0 {
			log = samples[0] + strings.Repeat("2,192.0.2.1,a.example\n", 10_000)
		} else {
			log = strings.Repeat(log, 10_000)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			lines := 0
			o := accesslog.Options{Columns: []string{"ip", "host", "path", "status"}, Optional: []string{"host", "path", "status"}}
			for b.Loop() {
				r, err := accesslog.NewReader(strings.NewReader(log), o, nil)
				if err != nil {
					b.Fatal(err)
				}
				var rec accesslog.Record
				for r.Next(&rec) == nil {
					lines++
				}
			}
			b.ReportMetric(float64(b.Elapsed())/float64(lines), "ns/line")
		})
	}
}
