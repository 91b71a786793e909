package accesslog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/replay/accesslog"
)

func TestCSV05AListOfAddressesIsOneField(t *testing.T) {
	log := "ts,ip,host\n1,\"203.0.113.9, 198.51.100.7, 10.0.0.1\",a.example\n"
	got, _, _ := read(t, log, columns("ip", "host"))
	want(t, got, "2 1"+second+" 203.0.113.9, 198.51.100.7, 10.0.0.1|a.example")
}

func TestTZ01OffsetsRepeatAndSkipNoHour(t *testing.T) {
	log := "2021-10-31T02:59:59+02:00,203.0.113.9,a.example\n2021-10-31T02:00:01+01:00,203.0.113.9,a.example\n"
	got, _, _ := read(t, log, columns("2"))
	want(t, got, "1 1635641999"+second+" 203.0.113.9", "2 1635642001"+second+" 203.0.113.9")
}

// A number far beyond the range is bad whatever its fraction: sums that wrap around would be 1970.
func TestTZ09FarTimesNeverWrapAround(t *testing.T) {
	for unit, texts := range map[accesslog.Unit]string{
		accesslog.UnitAuto:    "18446744073.71 18446744073.709551616 36893488147.5",
		accesslog.UnitSeconds: "18446744073.71 18446744073709551615 9223372036.854775808",
		accesslog.UnitMillis:  "18446744073709.7 9223372036854.775808",
		accesslog.UnitMicros:  "18446744073709551.7 9223372036854775.808",
		accesslog.UnitNanos:   "18446744073709551615 18446744073709551616 9223372036854775808",
	} {
		for _, text := range strings.Fields(texts) {
			got, _, faults := read(t, "time,ip\n"+text+",x\n", accesslog.Options{Columns: []string{"ip"}, Unit: unit})
			if len(got) != 0 || len(faults) != 1 || !strings.Contains(faults[0].Detail, "2262") {
				t.Errorf("%s %s: got %v, %v", text, unit, got, faults)
			}
		}
	}
	last := "9223372036.854775807"
	got, _, _ := read(t, "time,ip\n"+last+"9,x\n", columns("ip"))
	want(t, got, "2 9223372036854775807 x")
}

// What is no time says nothing of the unit, and a point has digits on both sides.
func TestTheFirstTimeFixesTheUnit(t *testing.T) {
	log := "time,ip\n99999999999,a\n1.,b\n.5,c\n-.5,d\n1700000000123,e\n1700000000,f\n1700000000124,g\n"
	got, _, faults := read(t, log, columns("ip"))
	want(t, got, "6 1700000000123000000 e", "8 1700000000124000000 g")
	if len(faults) != 5 || !strings.Contains(faults[4].Detail, "--time-unit") {
		t.Errorf("%v", faults)
	}
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

func TestLocalTimesOfOtherZones(t *testing.T) {
	for _, tc := range []struct {
		zone, text string
		unix       int64 // 0: bad
	}{
		{"Asia/Kolkata", "2024-01-01 05:30:00.5", 1704067200},
		{"America/New_York", "2024-03-10 02:30:00", 0},
		{"America/New_York", "2024-11-03 01:30:00", 0},
		{"America/New_York", "2024-11-03 02:00:00", 1730617200},
		{"Australia/Lord_Howe", "2024-04-07 01:45:00", 0}, // put back by half an hour
		{"Australia/Lord_Howe", "2024-04-07 01:29:59", 1712413799},
		{"Pacific/Apia", "2011-12-30 12:00:00", 0}, // a day that was left out
		{"Pacific/Apia", "2011-12-31 00:00:00", 1325239200},
		{"UTC", "2024-02-30 00:00:00", 0},
	} {
		zone, err := time.LoadLocation(tc.zone)
		if err != nil {
			t.Fatal(err)
		}
		got, _, _ := read(t, "time,ip\n"+tc.text+",x\n", accesslog.Options{Columns: []string{"ip"}, Zone: zone})
		if (tc.unix == 0) != (len(got) == 0) || len(got) > 0 && !strings.HasPrefix(got[0], fmt.Sprintf("2 %d", tc.unix)) {
			t.Errorf("%s in %s: got %v, want %d", tc.text, tc.zone, got, tc.unix)
		}
	}
}
