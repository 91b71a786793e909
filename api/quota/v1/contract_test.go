package quotav1

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorate/quorate/internal/limit"
)

var update = flag.Bool("update", false, "add what is new to testdata/contract.txt")

// TestVersion1OnlyGrows: what a released node or asker may have on the wire keeps its name, number and
// type for ever. testdata/contract.txt has every field, enum value and call that there ever was; -update
// adds new ones and takes none away.
func TestVersion1OnlyGrows(t *testing.T) {
	const golden = "testdata/contract.txt"
	now := contract()
	text, err := os.ReadFile(golden)
	if err != nil && !*update {
		t.Fatal(err)
	}
	kept := strings.Fields(string(bytes.TrimSpace(text)))
	if *update {
		for _, line := range now {
			if !slices.Contains(kept, line) {
				kept = append(kept, line)
			}
		}
		if err := os.WriteFile(golden, []byte(strings.Join(kept, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range kept {
		if !slices.Contains(now, line) {
			t.Errorf("%s is gone or has changed: it may be on the wire", line)
		}
	}
	for _, line := range now {
		if !slices.Contains(kept, line) {
			t.Errorf("%s is new: run this test with -update", line)
		}
	}
}

// contract lists all that the files define, one word each: Message.field=number:kind and the like.
func contract() (lines []string) {
	for _, file := range []protoreflect.FileDescriptor{File_quota_v1_quota_proto, File_quota_v1_admin_proto, File_quota_v1_peer_proto} {
		lines = append(lines, contractOf(file)...)
	}
	return lines
}

func contractOf(file protoreflect.FileDescriptor) (lines []string) {
	for m := range each(file.Messages()) {
		for f := range each(m.Fields()) {
			kind := f.Cardinality().String() + "-" + f.Kind().String()
			if f.Message() != nil {
				kind += "-" + string(f.Message().Name())
			} else if f.Enum() != nil {
				kind += "-" + string(f.Enum().Name())
			}
			lines = append(lines, fmt.Sprintf("%s.%s=%d:%s", m.Name(), f.Name(), f.Number(), kind))
		}
	}
	for e := range each(file.Enums()) {
		for v := range each(e.Values()) {
			lines = append(lines, fmt.Sprintf("%s.%s=%d", e.Name(), v.Name(), v.Number()))
		}
	}
	for s := range each(file.Services()) {
		for m := range each(s.Methods()) {
			lines = append(lines, fmt.Sprintf("%s(%s)%s", m.FullName(), m.Input().Name(), m.Output().Name()))
		}
	}
	return lines
}

func each[D protoreflect.Descriptor](list interface {
	Len() int
	Get(int) D
}) func(yield func(D) bool) {
	return func(yield func(D) bool) {
		for i := range list.Len() {
			if !yield(list.Get(i)) {
				return
			}
		}
	}
}

// TestAnAbsentAnswerIsNoAllow: whatever is missing or comes from a later version, the getters that
// askers use never read it as permission.
func TestAnAbsentAnswerIsNoAllow(t *testing.T) {
	for name, answer := range map[string]*Answer{
		"no answer":   (*CheckResponse)(nil).GetAnswer(),
		"empty":       {},
		"a failure":   (&TaggedAnswer{Result: &TaggedAnswer_Failure{Failure: &Failure{}}}).GetAnswer(),
		"a peek":      {Decision: Decision_DECISION_WOULD_ALLOW},
		"later value": {Decision: 99},
	} {
		if answer.GetDecision() == Decision_DECISION_ALLOW {
			t.Errorf("%s reads as an allow", name)
		}
	}
	if Decision_DECISION_UNSPECIFIED != 0 {
		t.Error("the zero decision means something")
	}
}

// TestAlgorithmsAreThoseOfTheStateMachine: the number needs no table to be translated.
func TestAlgorithmsAreThoseOfTheStateMachine(t *testing.T) {
	for wire, ours := range map[Algorithm]limit.Algorithm{
		Algorithm_ALGORITHM_ROLLING_WINDOW:         limit.RollingWindow,
		Algorithm_ALGORITHM_TOKEN_BUCKET:           limit.TokenBucket,
		Algorithm_ALGORITHM_SLIDING_WINDOW_COUNTER: limit.SlidingWindowCounter,
		Algorithm_ALGORITHM_FIXED_WINDOW:           limit.FixedWindow,
	} {
		if int(wire) != int(ours) {
			t.Errorf("%v is %d on the wire and %d in the state machine", ours, wire, ours)
		}
	}
}
