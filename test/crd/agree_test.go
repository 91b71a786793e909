package crd_test

import (
	"regexp"
	"testing"
)

// TestTheTypesAndTheReaderAgree on drawn specs, sound ones and spoilt ones, as FuzzSpec has it.
func TestTheTypesAndTheReaderAgree(t *testing.T) {
	taken, refused, byBoth := 0, 0, 0
	for seed := range 1500 {
		g := newGenerator(seed)
		spec := g.spec()
		if seed%3 != 0 {
			g.spoil(spec)
		}
		text := g.text(spec)
		if !isObject(text) {
			continue
		}
		typed, typesErr := decode([]byte(text))
		set, readErr := readSpec(text)
		switch {
		case readErr == nil && typesErr != nil:
			t.Fatalf("seed %d: the reader takes %s\nthe Go types don't: %v", seed, text, typesErr)
		case readErr == nil:
			taken++
			roundTrip(t, set)
		case seed%3 == 0:
			t.Fatalf("seed %d: the reader refuses %s: %v", seed, text, readErr)
		case typesErr != nil:
			byBoth++
		case !slipsBy(text, problems(t, readErr)):
			refused++
			if again, err := readSpec(encode(t, typed)); err == nil {
				t.Fatalf("seed %d: the reader refuses %s: %v\nbut not what comes out of the Go types: %s", seed, text, readErr, again.Canonical())
			}
		}
	}
	t.Logf("%d taken, %d refused by both, %d by the reader and again after the Go types", taken, byBoth, refused)
	if taken < 500 || byBoth < 300 || refused < 100 {
		t.Errorf("%d taken, %d refused by both, %d by the reader: the draw shows little", taken, byBoth, refused)
	}
}

// beyondASchema is what the reader says of a spec that the API server takes: what has to be calculated, or compared beyond
// the bounds of an expression's cost. The operator tells it in the object's status.
var beyondASchema = regexp.MustCompile(`^(` +
	`never applies: .*` +
	`|\d+ never fits limit .*` +
	`|\d+ at \d+ per .* take longer than 2160h0m0s to refill, the longest allowed` +
	`|.* differs from the .* of limit .*; the rolling limits of a policy share one log and need one precision` +
	`|.* is more than a tenth of the window, .*` +
	`|.* cuts the .* that the log is kept into more than 100000 parts` +
	`|\d+ is above 100000: the limit needs a precision` +
	`|.* is shorter than the longest window, .*` +
	`|(Shadow|Allow|true) is not supported yet` +
	`)$`)

// TestTheSchemaAndTheReaderAgree: the API server refuses no spec that the policy file's reader takes, and takes none that
// it refuses, but for what no schema can tell.
func TestTheSchemaAndTheReaderAgree(t *testing.T) {
	server(t)
	taken, refused, later := 0, 0, 0
	for seed := range 600 {
		g := newGenerator(seed)
		spec := g.spec()
		if seed%4 != 0 {
			g.spoil(spec)
		}
		text := g.text(spec)
		_, readErr := readSpec(text)
		got := tryCreate(text)
		if got.String() != "" {
			refused++
			if readErr == nil {
				t.Errorf("seed %d: the API server refuses %s\n%s", seed, text, got)
			}
			continue
		}
		// What the operator sees is what the API server made of it: 1e3 is 1000 now.
		stored := got.object(t).Spec
		_, err := readSpec(string(stored))
		if err == nil {
			taken++
			if _, err := decode(stored); err != nil {
				t.Errorf("seed %d: the Go types refuse %s: %v", seed, stored, err)
			}
		} else {
			later++
		}
		for _, p := range problems(t, err) {
			if !beyondASchema.MatchString(p.Message) {
				t.Errorf("seed %d: the API server takes %s\nthe reader says %s: %s", seed, stored, p.Path, p.Message)
			}
		}
	}
	t.Logf("%d taken, %d refused by both, %d by the reader alone", taken, refused, later)
	if taken < 150 || refused < 150 {
		t.Errorf("%d taken, %d refused: the draw shows little", taken, refused)
	}
}
