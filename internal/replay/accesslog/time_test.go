package accesslog_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // zones by name, whatever this machine has

	"github.com/quorate/quorate/internal/replay/accesslog"
)

func TestTZ04TZ05BadTimesAreBadRows(t *testing.T) {
	log := "time,ip\n2018-06-15T12:30:59Z,good\n"
	bad := []string{
		"2018-06-15T12:30:60Z", "2018-02-14T00:28:07.Z", "2018-02-14T00:28:07+25:00", "2018-02-30T00:00:00Z",
		"2018-02-14T00:00:.0+00:00", "2017-04-09T0:38:00Z", "2017-04-09T10:38:05,972Z", "2017-04-09T10:38:05", "2017-04-09",
		"2018-02-14T24:00:00Z", "2018-00-14T00:00:00Z", "2018-13-14T00:00:00Z", "2018-02-14T00:28:07+0100", "1969-12-31T23:59:59Z",
		"2262-04-12T00:00:00Z", "9999-12-31T23:59:59Z", "2018-02-14T00:28:07 Z", "not a time",
	}
	for _, text := range bad {
		log += "\"" + text + "\",bad\n"
	}
	log += "2017-04-09t10:38:00z,good\n2017-04-09 10:38:00.1Z,good\n1970-01-01T01:00:00+01:00,good\n2262-04-11T23:47:16.854775807Z,good\n"
	got, _, faults := read(t, log, columns("ip"))
	want(t, got, "2 1529065859"+second+" good", "21 1491734280"+second+" good", "22 1491734280100000000 good", "23 0 good", "24 9223372036854775807 good")
	if len(faults) != len(bad) {
		t.Errorf("%d faults, want %d", len(faults), len(bad))
	}
	for i, f := range faults {
		if f.Line != int64(i+3) || f.Reason != "time" {
			t.Errorf("%+v", f)
		}
	}
}

func TestTZ09NumbersAreInOneUnitAndInRange(t *testing.T) {
	for first, tc := range map[string]struct {
		rows string
		want []string
	}{
		"1769872318259854": { // microseconds
			"-1769872318259854 0 99999999999999999999 NaN 1e9 +1 1769872318259855.5",
			[]string{"1769872318259854000", "1769872318259855500"},
		},
		"0":             {"0.000000001 1.9999999999 1769872318 1769872318259 9223372036 9223372037", []string{"0", "1", "1999999999", "1769872318" + second, "9223372036" + second}},
		"1769872318259": {"1769872318 1769872318260", []string{"1769872318259000000", "1769872318260000000"}},
	} {
		log := "time,ip\n" + first + ",x\n"
		for _, text := range strings.Fields(tc.rows) {
			log += text + ",x\n"
		}
		got, _, _ := read(t, log, columns("ip"))
		for i := range got {
			got[i] = strings.Fields(got[i])[1]
		}
		want(t, got, tc.want...)
	}
	got, _, _ := read(t, "time,ip\n1,x\n253402300800000,x\n-5,x\n", accesslog.Options{Columns: []string{"ip"}, Unit: accesslog.UnitMillis})
	want(t, got, "2 1000000 x")
	got, _, _ = read(t, "time,ip\n1,x\n2018-06-15T12:30:59Z,x\n", accesslog.Options{Columns: []string{"ip"}, Unit: accesslog.UnitText})
	want(t, got, "3 1529065859"+second+" x")
}

func TestTZ07OffsetsOfTheCommonFormat(t *testing.T) {
	line := func(at string) string { return `192.0.2.1 - - [` + at + `] "GET / HTTP/1.1" 200 5` + "\n" }
	log := line("07/Dec/2016:11:05:07 +0100") + line("07/Dec/2016:10:05:06 +0000") + line("07/Dec/2016:04:35:08 -0530") +
		line("31/Feb/2016:10:05:06 +0000") + line("07/Dez/2016:10:05:06 +0000") + line("07/Dec/2016:10:05:60 +0000")
	got, _, faults := read(t, log, columns("ip"))
	want(t, got, "1 1481105107"+second+" 192.0.2.1", "2 1481105106"+second+" 192.0.2.1", "3 1481105108"+second+" 192.0.2.1")
	if len(faults) != 3 {
		t.Errorf("%v", faults)
	}
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

func TestTZ01OffsetsRepeatAndSkipNoHour(t *testing.T) {
	log := "2021-10-31T02:59:59+02:00,203.0.113.9,a.example\n2021-10-31T02:00:01+01:00,203.0.113.9,a.example\n"
	got, _, _ := read(t, log, columns("2"))
	want(t, got, "1 1635641999"+second+" 203.0.113.9", "2 1635642001"+second+" 203.0.113.9")
}

// A local time that clocks show twice or never names no instant.
func TestTZ01LocalTimesNeedAZoneAndExistOnce(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	log := "time,ip\n2021-10-31 01:59:59,x\n2021-10-31 02:00:00,twice\n2021-10-31 02:59:59,twice\n2021-10-31 03:00:00,x\n" +
		"2021-03-28 01:59:59,x\n2021-03-28 02:00:00,never\n2021-03-28 02:59:59,never\n2021-03-28 03:00:00,x\n"
	got, _, faults := read(t, log, accesslog.Options{Columns: []string{"ip"}, Zone: berlin})
	want(t, got, "2 1635638399"+second+" x", "5 1635645600"+second+" x", "6 1616893199"+second+" x", "9 1616893200"+second+" x")
	if len(faults) != 4 {
		t.Errorf("%v", faults)
	}
	if got, _, faults := read(t, log, columns("ip")); len(got) > 0 || len(faults) != 8 || !strings.Contains(faults[0].Detail, "--time-zone") {
		t.Errorf("without a zone: %v, %v", got, faults)
	}
}

// Of every local minute around a change of clocks: it is read where one instant shows it, and bad where two
// do, or none. The instants are all tried.
func TestLocalTimesAgreeWithTryingEveryInstant(t *testing.T) {
	for _, change := range []struct {
		zone string
		near int64 // a full hour within a day of the change
	}{
		{"Europe/Berlin", 1635638400}, {"Europe/Berlin", 1616893200}, {"Australia/Lord_Howe", 1712412000},
		{"America/St_Johns", 1162094400}, {"Pacific/Apia", 1325239200}, {"Africa/Monrovia", 63590400}, {"UTC", 1635638400},
	} {
		zone, err := time.LoadLocation(change.zone)
		if err != nil {
			t.Fatal(err)
		}
		const form = "2006-01-02 15:04:05"
		shown := map[string][]int64{}
		for at := change.near - 3*86400; at < change.near+3*86400; at += 30 {
			text := time.Unix(at, 0).In(zone).Format(form)
			shown[text] = append(shown[text], at)
		}
		var texts []string
		log := "time,ip\n"
		wall := time.Unix(change.near, 0).In(zone)
		noon := time.Date(wall.Year(), wall.Month(), wall.Day(), 12, 0, 0, 0, time.UTC)
		for minute := -36 * 60; minute < 36*60; minute++ {
			text := noon.Add(time.Duration(minute) * time.Minute).Format(form)
			texts = append(texts, text)
			log += text + ",x\n"
		}
		got, _, _ := read(t, log, accesslog.Options{Columns: []string{"ip"}, Zone: zone})
		var wanted []string
		for i, text := range texts {
			if instants := shown[text]; len(instants) == 1 {
				wanted = append(wanted, fmt.Sprintf("%d %d%s x", i+2, instants[0], second))
			}
		}
		if !slices.Equal(got, wanted) {
			t.Errorf("%s: %d minutes are read, want %d", change.zone, len(got), len(wanted))
		}
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
