package accesslog_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/replay/accesslog"
)

// read reads a whole log and returns its records as words, "line time value|value", times in
// nanoseconds, absent values as "~".
func read(t *testing.T, log string, o accesslog.Options) (words []string, r *accesslog.Reader, faults []accesslog.Fault) {
	t.Helper()
	words, r, faults, err := readFrom(strings.NewReader(log), o)
	if err != nil {
		t.Fatalf("%v in %.200q", err, log)
	}
	return words, r, faults
}

func readFrom(in io.Reader, o accesslog.Options) (words []string, r *accesslog.Reader, faults []accesslog.Fault, err error) {
	r, err = accesslog.NewReader(in, o, func(f accesslog.Fault) { faults = append(faults, f) })
	if err != nil {
		return nil, nil, nil, err
	}
	for {
		var rec accesslog.Record
		if err := r.Next(&rec); errors.Is(err, io.EOF) {
			return words, r, faults, addsUp(r, len(words))
		} else if err != nil {
			return words, r, faults, errors.Join(err, addsUp(r, len(words)))
		}
		var values []string
		for _, v := range rec.Values {
			if v == nil {
				values = append(values, "~")
			} else {
				values = append(values, string(v))
			}
		}
		words = append(words, fmt.Sprintf("%d %d %s", rec.Line, rec.Time, strings.Join(values, "|")))
	}
}

func addsUp(r *accesslog.Reader, records int) error {
	if c := r.Counts(); c.Lines != int64(records)+c.Bad+c.Blank+c.Header {
		return fmt.Errorf("%d records do not add up to %+v", records, c)
	}
	return nil
}

func want(t *testing.T, got []string, words ...string) {
	t.Helper()
	if !slices.Equal(got, words) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(words, "\n  "))
	}
}

func columns(names ...string) accesslog.Options { return accesslog.Options{Columns: names} }

const second = "000000000"

func TestCSV01BOMAndQuotedHeader(t *testing.T) {
	for _, header := range []string{`timestamp,ip,host`, `"timestamp","ip","host"`} {
		got, r, _ := read(t, "\xef\xbb\xbf"+header+"\n1,192.0.2.1,a.example\n", columns("ip", "host"))
		want(t, got, "2 1"+second+" 192.0.2.1|a.example")
		if r.Counts().Header != 1 {
			t.Errorf("%s: %+v", header, r.Counts())
		}
	}
}

func TestCSV02LongLinesLoseNoRows(t *testing.T) {
	for _, n := range []int{70_000, 300_000, 900_000, 1 << 20, 2 << 20, 5 << 20} {
		log := "time,ip,agent\n1,a,x\n2,b," + strings.Repeat("y", n) + "\n3,c,x\n"
		got, _, faults := read(t, log, columns("ip"))
		if n < 1<<20 {
			want(t, got, "2 1"+second+" a", "3 2"+second+" b", "4 3"+second+" c")
			continue
		}
		want(t, got, "2 1"+second+" a", "4 3"+second+" c")
		if len(faults) != 1 || faults[0].Line != 3 || faults[0].Reason != "too long" {
			t.Errorf("%d bytes: %+v", n, faults)
		}
	}
}

// lineOf is an endless line, cut off after n bytes.
type lineOf struct{ n int }

func (l *lineOf) Read(b []byte) (int, error) {
	if l.n == 0 {
		return 0, io.EOF
	}
	n := min(len(b), l.n)
	for i := range n {
		b[i] = 'x'
	}
	l.n -= n
	return n, nil
}

// A line of any length is one bad line, and costs no more memory than one of a megabyte.
func TestALineOfAGigabyteIsOneBadLine(t *testing.T) {
	in := io.MultiReader(strings.NewReader("time,ip\n1,a\n"), &lineOf{1 << 30}, strings.NewReader("\n2,b\n"))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, _, faults, err := readFrom(in, columns("ip"))
	runtime.ReadMemStats(&after)
	want(t, got, "2 1"+second+" a", "4 2"+second+" b")
	if err != nil || len(faults) != 1 || faults[0].Line != 3 {
		t.Errorf("%v, %+v", err, faults)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
		t.Errorf("%d bytes allocated", n)
	}
}

func TestCSV03LineEnds(t *testing.T) {
	rows := []string{"time,host", "1,a.example", "2,b.example"}
	for name, log := range map[string]string{
		"LF":           strings.Join(rows, "\n") + "\n",
		"CRLF":         strings.Join(rows, "\r\n") + "\r\n",
		"mixed":        rows[0] + "\r\n" + rows[1] + "\n" + rows[2] + "\r\n",
		"CR only":      strings.Join(rows, "\r") + "\r",
		"no end":       strings.Join(rows, "\n"),
		"CR, no end":   strings.Join(rows, "\r"),
		"NULs behind":  strings.Join(rows, "\n") + "\n\x00\x00\x00",
		"NULs at once": strings.Join(rows, "\n") + "\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			got, _, _ := read(t, log, columns("host"))
			want(t, got, "2 1"+second+" a.example", "3 2"+second+" b.example")
		})
	}
}

func TestCSV04HeadersAreFoundByName(t *testing.T) {
	for name, tc := range map[string]struct {
		log string
		o   accesslog.Options
	}{
		"spaces and case": {"Timestamp, IP , Host\n1,192.0.2.1, a.example\n", columns("ip", "host")},
		"other names":     {"time,client_ip,authority\n1,192.0.2.1,a.example\n", columns("client_ip", "authority")},
		"other order":     {"host,extra,ip,ts\na.example,x,192.0.2.1,1\n", columns("ip", "host")},
		"none, numbers":   {"1,192.0.2.1,a.example\n", columns("2", "3")},
		"none, named":     {"1,192.0.2.1,a.example\n", accesslog.Options{Columns: []string{"ip", "host"}, Names: []string{"ts", "ip", "host"}}},
		"semicolons":      {"ts;ip;host\n1;192.0.2.1;a.example\n", columns("ip", "host")},
		"tabs":            {"ts\tip\thost\n1\t192.0.2.1\ta.example\n", columns("ip", "host")},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, _ := read(t, tc.log, tc.o)
			if len(got) != 1 || !strings.HasSuffix(got[0], " 1"+second+" 192.0.2.1|a.example") {
				t.Errorf("got %v", got)
			}
		})
	}
	var missing *accesslog.ColumnError
	if _, _, _, err := readFrom(strings.NewReader("ts,address\n1,a\n"), columns("ip")); !errors.As(err, &missing) ||
		!slices.Equal(missing.Missing, []string{"ip"}) || !slices.Equal(missing.There, []string{"ts", "address"}) {
		t.Errorf("a needed column is missing: %v", err)
	}
	if _, _, _, err := readFrom(strings.NewReader("ts,ip,ip\n1,a,b\n"), columns("ip")); err == nil {
		t.Error("a needed column is there twice")
	}
}

func TestCSV06CSV08OddLinesKeepTheirColumns(t *testing.T) {
	at := "[07/Dec/2016:10:05:06 +0000]"
	log := strings.Join([]string{
		`client.example - - ` + at + ` "GET / HTTP/1.1" 200 5`,
		`unix: - - ` + at + ` "GET / HTTP/1.1" 200 5`,
		`192.0.2.1 - - ` + at + ` "" 400 0`,
		`192.0.2.1 - - ` + at + ` "-" 408 -`,
		`192.0.2.1 - - ` + at + ` "\x16\x03\x01" 400 0`,
		`192.0.2.1 - - ` + at + ` "- - -" 400 0`,
		`192.0.2.1 - john smith ` + at + ` "GET /a?b=c HTTP/1.1" 200 5`,
		`192.0.2.1 - john ` + at + ` "GET /a b HTTP/1.1" 200 5`,
	}, "\n")
	got, r, faults := read(t, log, columns("ip", "method", "path", "status", "user"))
	const epoch = "1481105106" + second
	want(t, got,
		"1 "+epoch+" client.example|GET|/|200|~", "2 "+epoch+" unix:|GET|/|200|~", "3 "+epoch+" 192.0.2.1|~|~|400|~",
		"4 "+epoch+" 192.0.2.1|~|~|408|~", "5 "+epoch+" 192.0.2.1|~|~|400|~", "6 "+epoch+" 192.0.2.1|~|~|400|~",
		"7 "+epoch+" 192.0.2.1|GET|/a|200|~", "8 "+epoch+" 192.0.2.1|GET|/a b|200|john")
	if r.Format() != "common" || len(faults) > 0 {
		t.Errorf("format %s, %v", r.Format(), faults)
	}
}

func TestCSV08AMissingSpaceMovesNoColumn(t *testing.T) {
	line := `https 2018-07-02T22:23:00.186641Z app/lb/50dc 192.168.131.39:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 ` +
		`"GET https://www.example.com:443/x?y HTTP/1.1" "curl/7.46.0" ECDHE TLSv1.2 arn:aws "Root=1" "www.example.com" "-"1 2018-07-02T22:22:48.364000Z "forward" "-" "-"`
	got, r, _ := read(t, line+"\n", columns("ip", "host", "method", "path", "status", "user_agent"))
	want(t, got, "1 1530570180186641000 192.168.131.39:2817|www.example.com:443|GET|/x|200|curl/7.46.0")
	if r.Format() != "alb" {
		t.Errorf("format %s", r.Format())
	}
}

func TestCSV09ExtendedFormatGoesByItsFields(t *testing.T) {
	for name, log := range map[string]string{
		"tabs": "#Version: 1.0\n#Fields: date time c-ip cs-method cs(User-Agent) x-host-header\n" +
			"2019-12-04\t21:02:31\t192.0.2.100\tGET\tMozilla/5.0%2520(X11)\td111.example.net\n",
		"spaces, other order": "#Version: 1.0\n#Fields: x-host-header c-ip time date cs(User-Agent) cs-method\n" +
			"d111.example.net 192.0.2.100 21:02:31 2019-12-04 Mozilla/5.0%20(X11) GET\n",
	} {
		t.Run(name, func(t *testing.T) {
			got, r, faults := read(t, log, columns("ip", "host", "method", "user_agent"))
			want(t, got, "3 1575493351"+second+" 192.0.2.100|d111.example.net|GET|Mozilla/5.0 (X11)")
			if r.Counts().Header != 2 || len(faults) > 0 {
				t.Errorf("%+v, %v", r.Counts(), faults)
			}
		})
	}
	changed := "#Fields: date time c-ip\n2019-12-04\t00:00:00\ta\n#Fields: c-ip time date\nb\t00:00:01\t2019-12-04\nc\t00:00:01\n"
	got, _, faults := read(t, changed, columns("ip"))
	want(t, got, "2 1575417600"+second+" a", "4 1575417601"+second+" b")
	if len(faults) != 1 || faults[0].Line != 5 {
		t.Errorf("%v", faults)
	}
}

func TestCSV10EnvoyAndIstio(t *testing.T) {
	o := accesslog.Options{
		Columns:  []string{"ip", "forwarded_for", "host", "method", "path", "status", "user_agent"},
		Optional: []string{"ip"},
	}
	log := `[2016-04-15T20:17:00.310Z] "POST /api/v1/locations?x HTTP/2" 204 - 154 0 226 100 "203.0.113.9, 10.0.35.28" "nsq2http" "cc21d9b0" "locations" "tcp://10.0.2.1:80"
[2016-04-15T20:17:00.311Z] "- - -" 0 UF,URX 0 0 0 - "-" "-" "-" "-" "-"
`
	got, r, _ := read(t, log, o)
	want(t, got,
		"1 1460751420310000000 ~|203.0.113.9, 10.0.35.28|locations|POST|/api/v1/locations|204|nsq2http",
		"2 1460751420311000000 ~|~|~|~|~|0|~")
	if r.Format() != "envoy" {
		t.Errorf("format %s", r.Format())
	}
	istio := `[2020-11-25T21:26:18.409Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 3 1 "-" "curl/7.73.0" "84961386" "httpbin:8000" "127.0.0.1:80" inbound|8000|| 127.0.0.1:41854 10.44.1.27:80 10.44.1.23:37652 outbound_.8000 default
`
	got, _, _ = read(t, istio, o)
	want(t, got, "1 1606339578409000000 10.44.1.23:37652|~|httpbin:8000|GET|/status/418|418|curl/7.73.0")
}

func TestCSV15EveryLineIsCounted(t *testing.T) {
	got, r, faults := read(t, "\ntime,ip\n1,a\n\n   \nx,b\n,c\n2\n2,d\ntime,ip\n3,e\n", columns("ip"))
	want(t, got, "3 1"+second+" a", "9 2"+second+" d", "11 3"+second+" e")
	if c := r.Counts(); c != (accesslog.Counts{Lines: 11, Blank: 3, Header: 2, Bad: 3}) || len(faults) != 3 {
		t.Errorf("%+v, %v", c, faults)
	}
}

func TestCSV17TheForwardedListMayComeLast(t *testing.T) {
	line := `10.0.0.1 - - [07/Dec/2016:10:05:06 +0000] "GET / HTTP/1.1" 200 5 "-" "a \"b\" \x22c\x22" `
	log := line + "\"198.51.100.5\"\n" + line + "\"-\"\n" + line + "\"\"\n" + line + "\"0.004\" \"203.0.113.9, 2001:db8::1\" \"TLSv1.3\"\n"
	got, r, _ := read(t, log, columns("ip", "forwarded_for", "user_agent"))
	const head = " 1481105106" + second + " 10.0.0.1|"
	const agent = `|a "b" "c"`
	want(t, got, "1"+head+"198.51.100.5"+agent, "2"+head+"~"+agent, "3"+head+"~"+agent, "4"+head+"203.0.113.9, 2001:db8::1"+agent)
	if r.Format() != "combined" {
		t.Errorf("format %s", r.Format())
	}
}

func TestTheHostMayComeFirst(t *testing.T) {
	log := `www.example.com:443 2001:db8::1 - frank [07/Dec/2016:11:05:06 +0100] "GET /x HTTP/1.1" 200 5 "-" "agent"` + "\n"
	got, r, _ := read(t, log, columns("host", "ip", "user"))
	want(t, got, "1 1481105106"+second+" www.example.com:443|2001:db8::1|frank")
	if r.Format() != "vhost" {
		t.Errorf("format %s", r.Format())
	}
	var missing *accesslog.ColumnError
	if _, _, _, err := readFrom(strings.NewReader(`192.0.2.1 - - [07/Dec/2016:11:05:06 +0100] "GET /x HTTP/1.1" 200 5`), columns("host")); !errors.As(err, &missing) {
		t.Errorf("a common log has no host: %v", err)
	}
}

// A quote that nothing closes spoils its own row alone.
func TestAnOpenQuoteSpoilsOneRow(t *testing.T) {
	log := "time,ip,agent\n1,a,x\n2,b,\"never closed\n" + strings.Repeat("3,c,x\n", 3000)
	got, _, faults := read(t, log, columns("ip"))
	if len(got) != 3001 || len(faults) != 1 || faults[0].Line != 3 || !strings.Contains(faults[0].Detail, "2,b,") {
		t.Errorf("%d rows, %v", len(got), faults)
	}
	log = "time,ip,agent\n1,a,\"two\nlines\"\n2,b,\"quoted\"x\n3,c,5\" disk\n4,\"d \"\"q\"\"\",x\n"
	got, _, faults = read(t, log, columns("ip", "agent"))
	want(t, got, "2 1"+second+" a|two\nlines", "5 3"+second+" c|5\" disk", `6 4`+second+` d "q"|x`)
	if len(faults) != 1 || faults[0].Line != 4 {
		t.Errorf("%v", faults)
	}
}
