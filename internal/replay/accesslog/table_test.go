package accesslog_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/replay/accesslog"
)

func TestCSV05AListOfAddressesIsOneField(t *testing.T) {
	log := "ts,ip,host\n1,\"203.0.113.9, 198.51.100.7, 10.0.0.1\",a.example\n"
	got, _, _ := read(t, log, columns("ip", "host"))
	want(t, got, "2 1"+second+" 203.0.113.9, 198.51.100.7, 10.0.0.1|a.example")
}

// A duration is never taken for the time, where there is anything better.
func TestTheColumnOfTimesIsOneForTheWholeLog(t *testing.T) {
	got, _, _ := read(t, "time,timestamp,ip\n0.004,1700000000,a\n", columns("ip"))
	want(t, got, "2 1700000000"+second+" a")
	var missing *accesslog.ColumnError
	if _, _, _, err := readFrom(strings.NewReader("request_time,ip\n0.004,a\n"), columns("ip")); !errors.As(err, &missing) {
		t.Errorf("request_time is a duration: %v", err)
	}
	if _, _, _, err := readFrom(strings.NewReader("time,time,ip\n1,2,a\n"), columns("ip")); err == nil {
		t.Error("two columns of times")
	}
	log := `{"request_time":"0.004","ip":"x"}` + "\n" + `{"ts":1700000000,"created_at":1600000000,"ip":"a"}` + "\n" +
		`{"ts":null,"created_at":1600000000,"ip":"b"}` + "\n" + `{"ts":1700000001,"ip":"c"}` + "\n"
	got, _, faults := read(t, log, columns("ip"))
	want(t, got, "2 1700000000"+second+" a", "4 1700000001"+second+" c")
	if len(faults) != 2 || faults[0].Reason != "time" || faults[1].Line != 3 {
		t.Errorf("%v", faults)
	}
}

// A first row whose time is bad is a row: it is reported, and no header.
func TestCSV04AFirstRowIsNotEatenAsAHeader(t *testing.T) {
	for _, text := range []string{"2024-01-01 00:00:00", "2018-06-15T12:30:60Z", "-5", "99999999999999999999"} {
		got, r, faults := read(t, text+",a\n2024-01-01T00:00:00Z,b\n", columns("2"))
		want(t, got, "2 1704067200"+second+" b")
		if len(faults) != 1 || faults[0].Line != 1 || r.Counts().Header != 0 {
			t.Errorf("%s: %v", text, faults)
		}
	}
	got, r, _ := read(t, "ts,ip\n1,a\n", accesslog.Options{Columns: []string{"ip"}, Names: []string{"ts", "ip"}})
	want(t, got, "2 1"+second+" a")
	if r.Counts().Header != 1 {
		t.Errorf("a header beside named columns: %+v", r.Counts())
	}
	if got, _, err := readAll("time,ip\n", columns("ip")); err != nil || len(got) != 0 {
		t.Errorf("a header alone: %v, %v", got, err)
	}
}

func readAll(log string, o accesslog.Options) ([]string, *accesslog.Reader, error) {
	got, r, _, err := readFrom(strings.NewReader(log), o)
	return got, r, err
}

// Names out of a log reach a terminal harmless, and not by the thousand.
func TestColumnErrorsAreForTerminals(t *testing.T) {
	_, _, err := readAll("ti\x1b[2Jme,"+strings.Repeat("x", 5000)+strings.Repeat(",name", 500)+"\n1\n", columns("ip"))
	if err == nil || strings.Contains(err.Error(), "\x1b") || len(err.Error()) > 800 || !strings.Contains(err.Error(), "more") {
		t.Errorf("%v", err)
	}
}

// A row with more values or fewer than the header names would have its values in other columns. Empty ones
// behind are left over from spreadsheets.
func TestCSV05RaggedRowsAreBad(t *testing.T) {
	for row, good := range map[string]bool{
		"1,a,h":             true,
		"1,a,h,":            true,
		"1,a,h,,,":          true,
		"1,a,":              true,
		"1,a":               false, // cut off, and nobody knows where
		"1":                 false,
		"1,5,a,h":           false, // a decimal comma
		"1,b, a,h":          false,
		`1,"a","h",,x`:      false,
		"1,a,h" + ",x,y,z,": false,
	} {
		for name, start := range map[string]string{"a header": "time,ip,host\n", "none": "0,a,h\n"} {
			o := columns("ip")
			if name == "none" {
				o = columns("2")
			}
			got, _, faults := read(t, start+row+"\n", o)
			if last := "2 1" + second + " a"; good && (len(got) == 0 || got[len(got)-1] != last) {
				t.Errorf("%s, %s: got %v", name, row, got)
			}
			if !good && (len(faults) != 1 || faults[0].Line != 2 || faults[0].Reason != "columns") {
				t.Errorf("%s, %s: got %v, %v", name, row, got, faults)
			}
		}
	}
}

// Files are put behind one another, headers and all. Another order of columns holds from there on; a
// header that lacks a column spoils what is behind it, and no value of another column stands in.
func TestCSV04HeadersInTheMiddle(t *testing.T) {
	log := "time,host,ip\n1,h,a\n" +
		"time,host,ip\n2,h,b\n" +
		"Time, IP ,host\n3,c,h\n" +
		"ip,x,y,time\nd,,,4\n" +
		"time,address,host\n5,e,h\n" +
		"time,ip,time\n6,f,7\n" +
		"time,host,ip\n8,h,i\n"
	got, r, faults := read(t, log, columns("ip"))
	want(t, got, "2 1"+second+" a", "4 2"+second+" b", "6 3"+second+" c", "8 4"+second+" d", "14 8"+second+" i")
	if c := r.Counts(); c != (accesslog.Counts{Lines: 14, Header: 5, Bad: 4}) || len(faults) != 4 {
		t.Errorf("%+v, %v", c, faults)
	}
	// A row that holds a time is no header, whatever a client wrote into it.
	log = "ts,ip,agent\n9999999999999999,a,ts\n1,ip,a,ts\n2,b,ts\n3,c,y\n"
	got, _, faults = read(t, log, columns("ip"))
	want(t, got, "4 2"+second+" b", "5 3"+second+" c")
	if len(faults) != 2 {
		t.Errorf("%v", faults)
	}
}

// Date and time may be two columns. A whole time beside a date is taken as it is.
func TestDateAndTimeInTwoColumns(t *testing.T) {
	log := "date,time,ip\n2024-01-01,00:00:00Z,a\n2024-01-01,00:00:00.5+01:00,b\n" +
		"2024-01-01,2024-01-01T00:00:02Z,c\n2024-01-01,1704067203,d\n2024-01-01,00:00,e\n,00:00:04Z,f\n"
	got, _, faults := read(t, log, columns("ip"))
	want(t, got, "2 1704067200"+second+" a", "3 1704063600500000000 b", "4 1704067202"+second+" c", "5 1704067203"+second+" d")
	if len(faults) != 2 {
		t.Errorf("%v", faults)
	}
	if _, _, err := readAll("date,time,date,ip\n2024-01-01,00:00:00Z,x,a\n", columns("ip")); err == nil {
		t.Error("two columns of dates")
	}
}

// The separator is the one that stands most often outside of quotes in the first line.
func TestCSV04SeparatorsInQuotesAreNone(t *testing.T) {
	got, _, _ := read(t, "time,ip,\"a;b;c;d\te\"\n1,a,\"x, y; z\"\n", columns("ip", "A;B;C;D\tE"))
	want(t, got, "2 1"+second+" a|x, y; z")
	got, _, faults := read(t, "time;ip;latency\n1;a;0,25\n1,5;b;0,25\n", columns("ip", "latency"))
	want(t, got, "2 1"+second+" a|0,25")
	if len(faults) != 1 || faults[0].Reason != "time" {
		t.Errorf("a decimal comma in a time: %v", faults)
	}
}
