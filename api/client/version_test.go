package client_test

import (
	"testing"

	"github.com/quorate/quorate/api/client"
)

// TestVersionsAreOrderedByEpochThenNumber, and are read as they are written.
func TestVersionsAreOrderedByEpochThenNumber(t *testing.T) {
	ascending := []client.Version{{}, {Epoch: 0, Number: 9}, {Epoch: 1, Number: 0}, {Epoch: 1, Number: 18446744073709551615}, {Epoch: 2, Number: 1}}
	for i, v := range ascending {
		for j, o := range ascending {
			if v.Before(o) != (i < j) {
				t.Errorf("%v before %v: %t", v, o, v.Before(o))
			}
		}
		if read, err := client.ParseVersion(v.String()); err != nil || read != v {
			t.Errorf("%v is read as %v, %v", v, read, err)
		}
		if got := client.VersionOf(v.Message()); got != v {
			t.Errorf("%v is sent as %v", v, got)
		}
	}
	if client.VersionOf(nil) != (client.Version{}) {
		t.Error("none isn't the zero one")
	}
	for _, text := range []string{"", "1", "1.", ".1", "1.2.3", "-1.2", "1.x", " 1.2", "1.18446744073709551616"} {
		if v, err := client.ParseVersion(text); err == nil {
			t.Errorf("%q is read as %v", text, v)
		}
	}
}
