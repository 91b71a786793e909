package main

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// TestWireChecksAreThoseOfTheContract reads with the generated code what is written by hand.
func TestWireChecksAreThoseOfTheContract(t *testing.T) {
	f := newForm("bench", "principal", 5e9)
	g := ids{run: 7}
	var b []byte
	want := &quotav1.CheckStreamRequest{}
	for _, tag := range []uint32{0, 1, 127, 128, 16383, 16384, maxInFlight - 1} {
		q := question{tag: tag, key: tag * 3001, family: 'k', home: byte(tag % mostPartitions)}
		g.put(&q.id)
		b = f.append(b, &q)
		home := uint32(q.home)
		want.Checks = append(want.Checks, &quotav1.TaggedCheck{Tag: uint64(tag), TimeoutNs: 5e9, Check: &quotav1.CheckRequest{
			Domain: "bench", DecisionId: q.id[:], Partition: &home,
			Descriptors: descriptorOf("principal", fmt.Sprintf("k%08d", q.key)),
		}})
	}
	got := &quotav1.CheckStreamRequest{}
	if err := proto.Unmarshal(b, got); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("written %v\nwant    %v", got, want)
	}
}

// TestIDsAreDistinct: of one stream, and of streams that begin at different counts.
func TestIDsAreDistinct(t *testing.T) {
	seen := map[[idLen]byte]bool{}
	for stream := range uint64(4) {
		g := ids{run: 1, next: stream << 48}
		for range 50_000 {
			var id [idLen]byte
			if g.put(&id); seen[id] {
				t.Fatalf("%x comes twice", id)
			}
			seen[id] = true
		}
	}
}

func answered(tag uint64, a *quotav1.Answer) *quotav1.TaggedAnswer {
	return &quotav1.TaggedAnswer{Tag: tag, Result: &quotav1.TaggedAnswer_Answer{Answer: a}}
}

// TestWireAnswersAreReadStrictly: only an allow of its own is an allow.
func TestWireAnswersAreReadStrictly(t *testing.T) {
	left, amount := uint64(2), uint64(3)
	m := &quotav1.CheckStreamResponse{Answers: []*quotav1.TaggedAnswer{
		answered(1, &quotav1.Answer{Decision: quotav1.Decision_DECISION_ALLOW, Policy: "default/strict", LimitName: "per-minute", Limit: &amount,
			Remaining: &left, WindowNs: 60e9, DecisionTimeNs: 12345, Partition: 2, Epoch: 1, SetVersion: 1, DecisionId: make([]byte, idLen)}),
		answered(300, &quotav1.Answer{Decision: quotav1.Decision_DECISION_DENY, Reason: quotav1.Reason_REASON_LIMIT}),
		answered(3, &quotav1.Answer{Decision: quotav1.Decision_DECISION_WOULD_ALLOW}),
		answered(4, &quotav1.Answer{}),
		answered(5, &quotav1.Answer{Decision: quotav1.Decision_DECISION_ALLOW, Replayed: true}),
		answered(6, &quotav1.Answer{Decision: 9}),
		{Tag: 7, Result: &quotav1.TaggedAnswer_Failure{Failure: &quotav1.Failure{
			Code: 14, Reason: quotav1.FailureReason_FAILURE_REASON_NOT_LEADER, Message: "another leads"}}},
		{Tag: 8},
	}}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var in replies
	if err := in.read(b); err != nil {
		t.Fatal(err)
	}
	var y tally
	for i, want := range []reply{
		{tag: 1, verdict: allowed}, {tag: 300, verdict: denied}, {tag: 3}, {tag: 4}, {tag: 5, verdict: allowed, replay: true}, {tag: 6},
		{tag: 7, failure: quotav1.FailureReason_FAILURE_REASON_NOT_LEADER}, {tag: 8},
	} {
		if in.list[i] != want {
			t.Errorf("answer %d is read as %+v, want %+v", i, in.list[i], want)
		}
		y.count(&in.list[i])
	}
	if y.allows != 1 || y.denies != 1 || y.errors != 6 {
		t.Errorf("%d allows, %d denials, %d errors; want 1, 1, 6", y.allows, y.denies, y.errors)
	}
	if in.message != "another leads" {
		t.Errorf("the failure says %q", in.message)
	}
	for cut := 1; cut < len(b); cut++ { // whatever a prefix is, it is no panic, and never more allows
		if err := in.read(b[:cut]); err != nil && !errors.Is(err, errGarbled) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
	if err := in.read(bytes.Repeat([]byte{0xff}, 40)); !errors.Is(err, errGarbled) {
		t.Errorf("garbage is read: %v", err)
	}
}
