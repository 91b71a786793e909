package accesslog_test

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/replay/accesslog"
)

// The time and the tail of lines in the common and combined formats, and the time as it is read.
const (
	clfTail  = ` [07/Dec/2016:10:05:06 +0000] "GET /x?y HTTP/1.1" 200 5 "-" "agent"`
	clfEpoch = " 1481105106" + second + " "
)

func TestFormatsAreDetected(t *testing.T) {
	alb := ` 2018-07-02T22:23:00.186641Z app/lb 192.0.2.1:2817 - -1 -1 -1 503 - 34 366 "GET http://a.example:80/ HTTP/1.1" "curl" - - - "-" "-" "-" 0 2018-07-02T22:22:48.364000Z "forward" "-" "-"`
	for line, want := range map[string]string{
		`192.0.2.1 - - [07/Dec/2016:10:05:06 +0000] "GET / HTTP/1.1" 200 5`: "common",
		"192.0.2.1 - -" + clfTail:                             "combined",
		"2001:db8::1 - -" + clfTail:                           "combined",
		"unix: - john smith" + clfTail:                        "combined",
		"203.0.113.9, 198.51.100.7 - -" + clfTail:             "combined",
		"www.example.com:80 192.0.2.1 - -" + clfTail:          "vhost",
		"www.example.com:80 client.example - -" + clfTail:     "vhost",
		"www.example.com 192.0.2.1 - -" + clfTail:             "vhost",
		"192.0.2.3:80 192.0.2.1 - -" + clfTail:                "vhost",
		"[2001:db8::3]:443 [2001:db8::1]:50000 - -" + clfTail: "vhost",
		"h2" + alb:    "alb",
		"grpcs" + alb: "alb",
		"wss" + alb:   "alb",
		"#Software: IIS\n#Fields: date time c-ip": "cloudfront",
		`  {"ts":1}`:                       "json",
		"ts\tip":                           "tsv",
		"ts,ip":                            "csv",
		"garbage\n192.0.2.1 - -" + clfTail: "combined",
	} {
		r, err := accesslog.NewReader(strings.NewReader(line+"\n"), accesslog.Options{}, nil)
		if err != nil || r.Format() != want {
			t.Errorf("%s\nis %v, %v, want %s", line, r, err, want)
		}
	}
}

// An address keeps its port and brackets, and may be a list.
func TestCSV06AddressesOfEveryShape(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1":                                     "192.0.2.1",
		"192.0.2.1:50000":                               "192.0.2.1:50000",
		"2001:db8::1":                                   "2001:db8::1",
		"[2001:db8::1]":                                 "2001:db8::1",
		"[2001:db8::1]:50000":                           "[2001:db8::1]:50000",
		"localhost, localhost":                          "localhost, localhost",
		"203.0.113.9, 10.0.0.1, 127.0.0.1":              "203.0.113.9, 10.0.0.1, 127.0.0.1",
		`"203.0.113.9, 10.0.0.1"`:                       "203.0.113.9, 10.0.0.1",
		"[2001:db8:85a3:8d3:1319:8a2e:370:7348]":        "2001:db8:85a3:8d3:1319:8a2e:370:7348", // longer than a time
		"[2001:db8:85a3:8d3:1319:8a2e:370:7348]:443":    "[2001:db8:85a3:8d3:1319:8a2e:370:7348]:443",
		"[2001:db8:85a3:8d3:1319:8a2e:370:7348%eth0]:1": "[2001:db8:85a3:8d3:1319:8a2e:370:7348%eth0]:1",
	} {
		got, _, _ := read(t, text+" - john"+clfTail, columns("ip", "user", "path"))
		want2 := "1" + clfEpoch + want + "|john|/x"
		if len(got) != 1 || got[0] != want2 {
			t.Errorf("%s: got %v, want %s", text, got, want2)
		}
	}
}

// A host in front of an address is never taken for the client, nor a client for a host, wherever a file
// holds lines of both kinds.
func TestHostAndClientAreNotConfused(t *testing.T) {
	log := "192.0.2.1 - -" + clfTail + "\na.example 192.0.2.2 - -" + clfTail + "\n192.0.2.3 - john smith" + clfTail + "\n"
	got, _, faults := read(t, log, columns("ip"))
	want(t, got, "1"+clfEpoch+"192.0.2.1", "3"+clfEpoch+"192.0.2.3")
	if len(faults) != 1 || faults[0].Line != 2 || faults[0].Reason != "columns" {
		t.Errorf("combined: %v", faults)
	}
	log = "a.example 192.0.2.2 - -" + clfTail + "\n192.0.2.3 - john smith" + clfTail + "\n192.0.2.1 - -" + clfTail + "\n"
	got, _, faults = read(t, log, columns("host", "ip"))
	want(t, got, "1"+clfEpoch+"a.example|192.0.2.2")
	if len(faults) != 2 {
		t.Errorf("vhost: %v", faults)
	}
}

func TestRequestsAreTakenApart(t *testing.T) {
	for request, want := range map[string]string{
		"GET / HTTP/1.1":                       "~|GET|/",
		"GET /a?b=c HTTP/1.0":                  "~|GET|/a",
		"GET /a":                               "~|GET|/a",
		"GET /a b":                             "~|GET|/a b",
		"GET /a b HTTP/1.1":                    "~|GET|/a b",
		"M-SEARCH * HTTP/1.1":                  "~|M-SEARCH|*",
		"GET http://b.example:80/x?y HTTP/1.1": "b.example:80|GET|/x",
		"GET http://b.example HTTP/1.1":        "b.example|GET|~",
		"GET /r?u=http://b.example/x HTTP/1.1": "~|GET|/r",
		"GET r?u=http://b.example/x HTTP/1.1":  "~|GET|r",
		"GET - HTTP/2":                         "~|GET|~",
		"POST /a -":                            "~|POST|/a",
		"- - -":                                "~|~|~",
		"-":                                    "~|~|~",
		"":                                     "~|~|~",
		`\x16\x03\x01\x02 \x00`:                "~|~|~",
		`GET /\"quoted\"\x20x HTTP/1.1`:        `~|GET|/"quoted" x`,
	} {
		log := `[2016-04-15T20:17:00.310Z] "` + request + `" 204 - 154 0 226 100 "-" "agent" "id" "-" "-"`
		got, _, _ := read(t, log, accesslog.Options{Format: "envoy", Columns: []string{"host", "method", "path"}})
		if len(got) != 1 || got[0] != "1 1460751420310000000 "+want {
			t.Errorf("%q: got %v, want %s", request, got, want)
		}
	}
	log := "www.example.com:80 192.0.2.1 - - " + `[07/Dec/2016:10:05:06 +0000] "GET http://other.example/x HTTP/1.1" 200 5`
	got, _, _ := read(t, log, columns("host", "path"))
	want(t, got, "1"+clfEpoch+"www.example.com:80|/x")
}

// Only lists of addresses are forwarded_for; durations and versions behind an agent are not.
func TestCSV17WhatIsAListOfAddresses(t *testing.T) {
	for text, list := range map[string]bool{
		"198.51.100.5": true, "198.51.100.5:443": true, "2001:db8::1": true, "[2001:db8::1]:443": true, "fe80::1%eth0": false,
		"203.0.113.9, 10.0.0.1": true, "203.0.113.9,10.0.0.1": true, "unknown, 203.0.113.9": true, "::ffff:192.0.2.1": true,
		"unknown": false, "": false, "-": false, "0.004": false, "0.004, 0.003": false, "0.1, 0.2, 0.3": false, "10:20:30": false,
		"aa:bb:cc:dd:ee:ff": false, "1.2.3": false, "256.1.1.1": false, "203.0.113.9, ": false, "TLSv1.3": false, "a, b": false,
	} {
		got, _, _ := read(t, "192.0.2.1 - -"+clfTail+` "`+text+`"`, columns("forwarded_for"))
		value := "~"
		if list {
			value = text
		}
		if len(got) != 1 || got[0] != "1"+clfEpoch+value {
			t.Errorf("%q: got %v, want %s", text, got, value)
		}
	}
}

// Envoy writes headers as they come. A client whose agent or forwarded list holds quotes makes its line a
// bad one, and moves no column.
func TestEnvoyColumnsCannotBeMovedByAClient(t *testing.T) {
	const start = `[2020-11-25T21:26:18.409Z] "GET /x HTTP/1.1" 200 `
	istio := func(list, agent string) string {
		return start + `- via_upstream - "-" 0 135 3 1 "` + list + `" "` + agent + `" "id" "a.example" "127.0.0.1:80" inbound|80|| 127.0.0.1:1 10.0.0.1:80 192.0.2.1:5 - default`
	}
	old := start + `- "-" "-" 0 135 3 1 "-" "agent" "id" "a.example" "127.0.0.1:80" inbound|80|| 127.0.0.1:1 10.0.0.1:80 192.0.2.1:5 - default`
	names := columns("ip", "forwarded_for", "host", "user_agent", "bytes")
	got, _, _ := read(t, istio("-", "agent")+"\n"+old+"\n", names)
	const tail = "1606339578409000000 192.0.2.1:5|~|a.example|agent|135"
	want(t, got, "1 "+tail, "2 "+tail)
	for _, words := range []string{
		`x" "y`, `x" y "z`, `a" "b" "c" "d`, `x" "y" "z" "w" "v" c l d 203.0.113.1:1 s r`, `"`, `x"`, `x\`, `a" "id" "b.example" "u" a b c 203.0.113.1:1 - "`,
	} {
		for _, line := range []string{istio("-", words), istio(words, "agent")} {
			got, _, faults := read(t, line+"\n", accesslog.Options{Format: "envoy", Columns: names.Columns})
			if len(got) != 0 || len(faults) != 1 {
				t.Errorf("%s: got %v", line, got)
			}
		}
	}
}

func TestALBClientsOfEveryKind(t *testing.T) {
	line := func(kind, client, request, domain string) string {
		return kind + ` 2018-07-02T22:23:00.186641Z app/lb ` + client + ` - -1 -1 -1 503 - 34 366 "` + request + `" "curl" - - - "-" "` + domain + `" "-" 0 2018-07-02T22:22:48.364000Z "forward" "-" "-"` + "\n"
	}
	log := line("http", "192.0.2.1:2817", "GET http://a.example:80/x?y HTTP/1.1", "-") +
		line("h2", "[2001:db8::1]:2817", "GET https://b.example:443/ HTTP/2.0", "b.example") +
		line("https", "2001:db8::1:2817", "- http://lb:80- -", "c.example") +
		line("wss", "192.0.2.1:1", "GET https://-:443- HTTP/1.1", "-") +
		line("ftp", "192.0.2.1:1", "GET / HTTP/1.1", "-")
	got, r, faults := read(t, log, columns("ip", "host", "method", "path"))
	const at = " 1530570180186641000 "
	want(t, got, "1"+at+"192.0.2.1:2817|a.example:80|GET|/x", "2"+at+"[2001:db8::1]:2817|b.example:443|GET|/",
		"3"+at+"2001:db8::1:2817|c.example|~|~", "4"+at+"192.0.2.1:1|~|GET|~")
	if r.Format() != "alb" || len(faults) != 1 || faults[0].Line != 5 {
		t.Errorf("%s, %v", r.Format(), faults)
	}
}

// A #Fields line that lacks a column spoils what is behind it, up to the next one: no value and no time of
// a line before is used again.
func TestCSV09AFieldsLineThatNamesTooLittle(t *testing.T) {
	for _, fields := range []string{"date time x-edge", "c-ip time x", "c-ip x y", "date\x1b[2J time c-ip", ""} {
		log := "#Fields: date time c-ip\n2019-12-04\t00:00:00\ta\n#Fields: " + fields + "\n2019-12-04\t00:00:01\tb\nb\t00:00:01\tc\n" +
			"#Fields: c-ip date time\nd\t2019-12-04\t00:00:02\n"
		got, r, faults := read(t, log, columns("ip"))
		want(t, got, "2 1575417600"+second+" a", "7 1575417602"+second+" d")
		if len(faults) != 3 || faults[0].Line != 3 || strings.Contains(faults[0].Detail, "\x1b") || r.Counts().Header != 2 {
			t.Errorf("%q: %+v, %v", fields, r.Counts(), faults)
		}
	}
}

// The unit of numbers says nothing of times that are written out.
func TestTheUnitOfNumbersLeavesDatesAlone(t *testing.T) {
	line := `192.0.2.1 - - [07/Dec/2016:10:05:06 +0000] "GET / HTTP/1.1" 200 5` + "\n"
	got, _, _ := read(t, line, accesslog.Options{Columns: []string{"ip"}, Unit: accesslog.UnitSeconds})
	want(t, got, "1 1481105106"+second+" 192.0.2.1")
}

// What a client chooses for its name, its request or its agent never becomes the time or another column:
// its line is read right, or it is bad.
func TestCSV08NoNameIsTakenForTheTime(t *testing.T) {
	const good = "1" + clfEpoch + "192.0.2.1|200|/x"
	tail := strings.Replace(clfTail, `"agent"`, `"%s"`, 1)
	for line, want := range map[string]string{
		"192.0.2.1 - [01/Jan/2020:00:00:00 +0000]" + clfTail:                                                        good,
		"192.0.2.1 - a [01/Jan/2020:00:00:00 +0000] b" + clfTail:                                                    good,
		`192.0.2.1 - [01/Jan/2020:00:00:00 +0000] \"GET /y HTTP/1.1\" 500 1` + clfTail:                              good,
		"192.0.2.1 - john," + clfTail:                                                                               good,
		"192.0.2.1 - a, b," + clfTail:                                                                               good,
		"192.0.2.1 - [x" + clfTail:                                                                                  "",
		"Dec  7 10:05:06 web nginx: 192.0.2.1 - -" + clfTail:                                                        "", // what a daemon puts before it
		"192.0.2.1 - - [07/Dec/2016:10:05:06 +0000] GET /[x] HTTP/1.1 200 5":                                        "",
		"192.0.2.1 - - [07/Dec/2016:10:05:06 +0000] GET / HTTP/1.1 200 \"5\"":                                       "",
		strings.Replace("192.0.2.1 - -"+tail, "%s", `a\" [01/Jan/2020:00:00:00 +0000] \"GET / HTTP/1.1\" 500`, 1):   good,
		strings.Replace("192.0.2.1 - -"+tail, "%s", `a\x22 [01/Jan/2020:00:00:00 +0000] \x22GET / HTTP/1.1\x22`, 1): good,
		strings.Replace("192.0.2.1 - -"+tail, "%s", `a\\`, 1):                                                       good,
		strings.Replace("192.0.2.1 - -"+tail, "%s", `a\`, 1):                                                        "",
	} {
		got, _, faults := read(t, line+"\n", accesslog.Options{Format: "combined", Columns: []string{"ip", "status", "path"}})
		if want == "" && (len(got) != 0 || len(faults) != 1) || want != "" && (len(got) != 1 || got[0] != want) {
			t.Errorf("%s: got %v, %v", line, got, faults)
		}
	}
}

// The list of forwarded addresses usually stands right behind the agent, and the upstream's address may
// follow. Where it doesn't, the last list is it.
func TestCSV17TheUpstreamIsNotTheClient(t *testing.T) {
	for rest, list := range map[string]string{
		`"203.0.113.9" "10.0.0.5:8080"`:              "203.0.113.9",
		`"203.0.113.9" "0.1" "10.0.0.5, 10.0.0.6"`:   "203.0.113.9",
		`"0.1" "10.0.0.5:8080" "203.0.113.9"`:        "203.0.113.9",
		`"0.1" rt=0.1 "10.0.0.5:8080" "203.0.113.9"`: "203.0.113.9",
	} {
		got, _, _ := read(t, "192.0.2.1 - -"+clfTail+" "+rest+"\n", columns("forwarded_for"))
		want(t, got, "1"+clfEpoch+list)
	}
}

// A file whose beginning ends its lines by CR, and the rest by LF, hides no row in another.
func TestCSV03LineEndsThatChange(t *testing.T) {
	row := "192.0.2.1 - -" + clfTail
	got, _, faults := read(t, row+"\r"+strings.Repeat(row+"\r", 4000)+row+"\n"+row+"\n"+row, columns("ip"))
	if len(got) != 4001 || len(faults) != 1 || faults[0].Line != 4002 {
		t.Errorf("%d rows, %v", len(got), faults)
	}
	got, _, faults = read(t, "time,ip,x\r"+strings.Repeat("1,a,\r", 60_000)+"2,b,\n3,c,\r4,d,x", columns("ip"))
	if len(got) != 60_001 || len(faults) != 1 || faults[0].Line != 60_002 {
		t.Errorf("%d rows, %v", len(got), faults)
	}
}

// A column that is wanted twice is there twice, the same.
func TestCSV09AColumnWantedTwice(t *testing.T) {
	log := "#Fields: date time cs(User-Agent)\n2019-12-04\t00:00:00\ta%2520b\n"
	got, _, _ := read(t, log, columns("user_agent", "user_agent"))
	want(t, got, "2 1575417600"+second+" a b|a b")
}
