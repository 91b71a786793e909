package checker_test

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

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
