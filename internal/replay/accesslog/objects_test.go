package accesslog_test

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/replay/accesslog"
)

func TestJSONLines(t *testing.T) {
	log := `{"ts":1700000000.123456789,"ip":"192.0.2.1","request":{"host":"a.example","n":5},"ok":true,"list":["x"]}
{"request":{"host":"b\u002eexample\n"},"ts":"2023-11-14T22:13:20.5Z","ip":null,"ok":false}
{"ts":1e9,"ip":"x"}
{"ts":1700000000,"ts":1700000001}
{"ts":1700000000,"request":{"host":"a","host":"b"}}
{"ts":1700000000
[1,2]
{"ip":"no time"}
{"ts":-1}
`
	got, r, faults := read(t, log, columns("ip", "request.host", "request.n", "ok", "list", "request"))
	want(t, got,
		"1 1700000000123456789 192.0.2.1|a.example|5|true|~|~",
		"2 1700000000500000000 ~|b.example\n|~|false|~|~")
	if len(faults) != 7 || r.Format() != "json" {
		t.Errorf("%s: %v", r.Format(), faults)
	}
}

// A name that is there twice has no value that anybody could be sure of, be it a value's or an object's on
// the way to one. Others are nobody's business.
func TestJSONNamesThatAreThereTwice(t *testing.T) {
	for object, good := range map[string]bool{
		`{"ts":1,"a":{"b":"x"},"other":1,"other":2}`:     true,
		`{"ts":1,"a":{"b":"x","c":1,"c":2}}`:             true,
		`{"ts":1,"a":{"b":"x"},"d":{"a":{"b":"y"}}}`:     true,
		`{"ts":1,"ts":1,"a":{"b":"x"}}`:                  false,
		`{"ts":1,"a":{"b":"x"},"a.b":"y"}`:               false,
		`{"ts":1,"a":{"b":"x"},"\u0061":{"b":"y"}}`:      false,
		`{"ts":1,"a":{"b":"x"},"a":{"c":"y"}}`:           false,
		`{"ts":1,"a":null,"a":{"b":"x"}}`:                false,
		`{"ts":1,"a":{"b":null,"b":"x"}}`:                false,
		`{"ts":1,"a":{"b":"x"},"a":{"b":"x","a":"a.b"}}`: false,
	} {
		got, _, faults := read(t, object+"\n", accesslog.Options{Format: "json", Columns: []string{"a.b"}})
		if good {
			want(t, got, "1 1"+second+" x")
		} else if len(got) != 0 || len(faults) != 1 || faults[0].Reason != "json" {
			t.Errorf("%s: got %v, %v", object, got, faults)
		}
	}
}

// No nesting, however deep, overflows a stack, and brackets in texts are none.
func TestJSONThatIsDeeplyNested(t *testing.T) {
	nest := func(open, inner, end string, n int) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
	}
	log := `{"ts":1,"x":` + nest("[", "", "]", 9000) + `,"a":{"b":"]}\"{["}}` + "\n" +
		`{"ts":2,"x":` + nest("[", "", "]", 400_000) + "}\n" +
		`{"ts":3,"a":` + nest(`{"b":`, "1", "}", 200_000) + "}\n" +
		`{"ts":4,"a":` + nest(`{"b":`, "1", "}", 3000) + "}\n"
	got, _, faults := read(t, log, accesslog.Options{Format: "json", Columns: []string{"a.b"}, MaxLine: 4 << 20})
	want(t, got, "1 1"+second+` ]}"{[`, "4 4"+second+" ~")
	if len(faults) != 2 {
		t.Errorf("%.500v", faults)
	}
}

// JSON has numbers that are no times: they are refused, and none is 1970.
func TestTZ09JSONNumbersOfEveryShape(t *testing.T) {
	for number, ns := range map[string]string{
		"1700000000": "1700000000" + second, "1700000000.000000001": "1700000000000000001", "0": "0", "0.5": "500000000",
		`"1700000000"`: "1700000000" + second, "1700000000123": "1700000000123000000",
		"1e9": "", "1E+9": "", "1.7e9": "", "-0": "", "-0.0": "", "1e400": "", "1e-400": "", "0e0": "", "-1": "", "9e99999999999": "",
		"1" + strings.Repeat("0", 400): "", "true": "", "[1700000000]": "", `"1e9"`: "", `"NaN"`: "", `" 1"`: "", "{}": "", `""`: "",
	} {
		got, _, faults := read(t, `{"ts":`+number+`,"ip":"x"}`+"\n", columns("ip"))
		if ns != "" {
			want(t, got, "1 "+ns+" x")
		} else if len(got) != 0 || len(faults) != 1 || faults[0].Reason != "time" {
			t.Errorf("%.50s: got %v, %v", number, got, faults)
		}
	}
}
