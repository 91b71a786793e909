package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/quorate/quorate/test/checker"
)

// denial is a line that was asked and answered then.
func denial(sent, answered int64) *checker.Call {
	return &checker.Call{
		ID: someID(), Quota: quota, Key: "principal=u", Cost: 1, Sent: sent, Answered: answered, Answer: checker.Deny, Partition: -1,
	}
}

// TestALineIsResentUnlessTheCountStoodStill: a line waits for a look that began after its answer, and is compared with
// the last that ended before its question.
func TestALineIsResentUnlessTheCountStoodStill(t *testing.T) {
	for _, c := range []struct {
		name  string
		looks []look
		want  string // of the line of [100, 110]: once, resent, or waits
	}{
		{"nobody has looked", nil, "waits"},
		{"the look began before the answer", []look{{10, 20, 5}, {105, 115, 5}}, "waits"},
		{"the count stood still", []look{{10, 20, 5}, {111, 115, 5}}, "once"},
		{"it moved", []look{{10, 20, 5}, {111, 115, 6}}, "resent"},
		{"it moved before the question", []look{{10, 20, 4}, {30, 40, 5}, {111, 115, 5}}, "once"},
		{"no look ended before the question", []look{{90, 105, 5}, {111, 115, 5}}, "resent"},
		{"the gateway didn't say before", []look{{10, 20, -1}, {111, 115, 5}}, "resent"},
		{"the gateway doesn't say", []look{{10, 20, 5}, {111, 115, -1}}, "resent"},
	} {
		n := newNotes("")
		n.add(denial(100, 110))
		for _, l := range c.looks {
			n.took(l)
		}
		var text bytes.Buffer
		if err := n.out.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := n.copyTo(&text); err != nil {
			t.Fatal(err)
		}
		got := "once"
		switch {
		case text.Len() == 0:
			got = "waits"
		case strings.Contains(text.String(), `"resent":true`):
			got = "resent"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
