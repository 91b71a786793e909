package checker_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/test/checker"
)

const id1 = "000000000000000000000000000000a1"

// TestHistoryComesBackAsWritten: what is written is what is read, of every kind, by many writers at once.
func TestHistoryComesBackAsWritten(t *testing.T) {
	lines := []checker.Line{
		&checker.Policies{Sent: 1, Answered: 2, Outcome: checker.Applied, Set: 3, Limits: []checker.Limit{
			{Quota: "media/conversions", Name: "per-minute", Algorithm: checker.Rolling, Max: 3, Window: 60e9},
			{Quota: "media/conversions", Name: "daily", Algorithm: checker.Rolling, Unlimited: true, Window: 86400e9},
		}},
		&checker.Call{Client: "c17", ID: id1, Quota: "media/conversions", Key: "principal=\"u1\"\n", Cost: 1, Sent: 5, Answered: 6, Answer: checker.Allow, Partition: 0, Epoch: 1, Time: 7, Node: "n1"},
		&checker.Call{ID: id1, Quota: "media/conversions", Key: "principal=u1", Cost: 1, Sent: 5, Answer: checker.Unknown, Partition: -1},
		&checker.Usage{Quota: "media/conversions", Key: "principal=u1", Sent: 8, Answered: 9, Epoch: 1, Time: 10, Limits: []checker.Used{{Name: "per-minute", Used: 3}}},
		&checker.State{Node: "n1", Partition: 2, Index: 1234, Hash: "ab"},
		&checker.Mark{At: 11, Name: "kill leader", Partition: 0},
	}
	var file bytes.Buffer
	w := checker.NewWriter(&file)
	for _, l := range lines {
		if err := w.Write(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := checker.NewReader(&file)
	for i, want := range lines {
		got, err := r.Next()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("line %d: %+v, %v; want %+v", i+1, got, err, want)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("behind the last: %v", err)
	}
}

// TestWriterRefusesNonsense: where it is made, and once more at Close.
func TestWriterRefusesNonsense(t *testing.T) {
	w := checker.NewWriter(io.Discard)
	if err := w.Write(&checker.Call{ID: "a", Answer: checker.Allow, Answered: 1, Cost: 1}); err == nil {
		t.Error("an id of one digit was written")
	}
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "32") {
		t.Errorf("Close says %v", err)
	}
}

// FuzzReader: whatever a file holds, the reader says what is wrong with it or returns lines that make
// sense: they can be written, come back as they were, and be judged without a panic.
func FuzzReader(f *testing.F) {
	names, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(names) == 0 {
		f.Fatal("no histories", err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("{\"kind\":\"check\"}\n"))
	f.Add([]byte(`{"answer":"deny","kind":"check","id":"` + id1 + `","cost":1,"answered":3,"partition":-1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var lines []checker.Line
		for r := checker.NewReader(bytes.NewReader(text)); ; {
			l, err := r.Next()
			if err != nil {
				break
			}
			lines = append(lines, l)
		}
		var file bytes.Buffer
		w := checker.NewWriter(&file)
		if err := errors.Join(w.Write(lines...), w.Close()); err != nil {
			t.Fatalf("what was read can't be written: %v", err)
		}
		r := checker.NewReader(&file)
		for i, want := range lines {
			if got, err := r.Next(); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("line %d comes back as %+v, %v; was %+v", i+1, got, err, want)
			}
		}
		report, err := checker.Check(lines, checker.Options{Live: true, Fenced: true, Patience: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if report.String() == "" {
			t.Fatal("nothing is said")
		}
	})
}

// TestReaderSaysWhichLine: a history that can't be read is never judged by what could be.
func TestReaderSaysWhichLine(t *testing.T) {
	good := `{"kind":"mark","at":1,"name":"x","partition":0}` + "\n\n"
	for _, bad := range []string{
		`{"kind":"march"}`, `{"kind":"check"`, `{}`, `[]`, `{"kind":"check","id":"` + id1 + `","cost":1,"sent":5,"answered":4,"answer":"deny"}`,
		`{"kind":"check","id":"` + id1 + `","cost":1,"sent":5,"answered":6,"answer":"perhaps"}`,
		`{"kind":"check","id":"` + id1 + `","cost":1,"sent":5,"answer":"allow"}`,
		`{"kind":"check","id":"zz` + id1[2:] + `","cost":1,"sent":5,"answer":"unknown"}`,
		`{"kind":"check","id":"` + id1 + `","quota":"q","cost":1,"sent":5,"answered":6,"answer":"allow","partition":-1}`,
		`{"kind":"check","id":"` + id1 + `","cost":0,"sent":5,"answered":6,"answer":"deny"}`,
		`{"kind":"policies","sent":1,"answered":2,"outcome":"done"}`, `{"kind":"policies","sent":1,"outcome":"applied"}`,
		`{"kind":"policies","sent":1,"answered":2,"outcome":"applied","limits":[{"quota":"q","limit":"a","algorithm":"rolling","window":0}]}`,
		`{"kind":"policies","sent":1,"answered":2,"outcome":"applied","limits":[{"quota":"q","limit":"a","algorithm":"rolling","window":1},{"quota":"q","limit":"a","algorithm":"rolling","window":2}]}`,
		`{"kind":"used","quota":"q","sent":1}`, `{"kind":"state","node":"n1"}`,
	} {
		_, err := checker.CheckReader(strings.NewReader(good+bad), checker.Options{})
		if err == nil || !strings.HasPrefix(err.Error(), "line 3: ") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
