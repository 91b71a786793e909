package server_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/server"
)

// recorder is a Decider that keeps what it is asked, and allows it.
type recorder struct {
	requests  []partition.Request
	inspected []string // domains
}

func (r *recorder) node() *node {
	d := answering(func(c *partition.Call) partition.Outcome {
		r.requests = append(r.requests, c.Request)
		return outcomeOf(partition.Allowed)
	})
	d.inspect = func(domain string, d keyspace.Descriptor) partition.Inspection {
		r.inspected = append(r.inspected, domain)
		return partition.Inspection{Outcome: outcomeOf(partition.Allowed)}
	}
	return newNode(d)
}

func entry(name, value string) *quotav1.Entry {
	return &quotav1.Entry{Name: name, Value: []byte(value)}
}

func entries(n int) (list []*quotav1.Entry) {
	for i := range n {
		list = append(list, entry(fmt.Sprint("n", i), "v"))
	}
	return list
}

// TestFieldsAreHeldToTheBoundsOfTheContract: at the bound it is asked for, beyond it is refused, with the
// field's path, and nothing is asked for.
func TestFieldsAreHeldToTheBoundsOfTheContract(t *testing.T) {
	revision := bytes.Repeat([]byte{1}, 8)
	resolved := func(change func(p *quotav1.ResolvedPolicy)) func(*quotav1.CheckRequest) {
		return func(m *quotav1.CheckRequest) {
			p := &quotav1.ResolvedPolicy{Policy: "media/conversions", Revision: revision, Key: []byte("k")}
			change(p)
			m.Resolution = &quotav1.Resolution{Policies: []*quotav1.ResolvedPolicy{p}}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*quotav1.CheckRequest)
		want   string // field and message; empty: fine
	}{
		{"domain at its bound", func(m *quotav1.CheckRequest) { m.Domain = strings.Repeat("d", 253) }, ""},
		{"long domain", func(m *quotav1.CheckRequest) { m.Domain = strings.Repeat("d", 254) }, "domain: has 254 bytes"},
		{"no descriptors", func(m *quotav1.CheckRequest) { m.Descriptors = nil }, "descriptors: has 0 descriptors"},
		{"an empty descriptor", func(m *quotav1.CheckRequest) { m.Descriptors[0].Entries = nil }, ""},
		{"16 descriptors", func(m *quotav1.CheckRequest) { m.Descriptors = make([]*quotav1.Descriptor, 16) }, ""},
		{"17 descriptors", func(m *quotav1.CheckRequest) { m.Descriptors = make([]*quotav1.Descriptor, 17) }, "descriptors: has 17"},
		{"16 entries", func(m *quotav1.CheckRequest) { m.Descriptors[0].Entries = entries(16) }, ""},
		{"17 entries", func(m *quotav1.CheckRequest) { m.Descriptors[0].Entries = entries(17) }, "descriptors[0].entries: has 17 entries"},
		{"no name", func(m *quotav1.CheckRequest) { m.Descriptors[0].Entries = append(entries(1), entry("", "v")) }, "descriptors[0].entries[1].name: is empty"},
		{"name at its bound", func(m *quotav1.CheckRequest) { m.Descriptors[0].Entries[0].Name = strings.Repeat("n", 128) }, ""},
		{"long name", func(m *quotav1.CheckRequest) { m.Descriptors[0].Entries[0].Name = strings.Repeat("n", 129) }, "descriptors[0].entries[0].name: has 129 bytes"},
		{"a name twice", func(m *quotav1.CheckRequest) {
			m.Descriptors = append(m.Descriptors, &quotav1.Descriptor{Entries: []*quotav1.Entry{entry("z", ""), entry("a", ""), entry("z", "")}})
		}, "descriptors[1].entries[2].name: is that of entries[0] too"},
		{"empty value", func(m *quotav1.CheckRequest) { m.Descriptors[0].Entries[0].Value = nil }, ""},
		{"value at its bound", func(m *quotav1.CheckRequest) { m.Descriptors[0].Entries[0].Value = make([]byte, 1024) }, ""},
		{"long value", func(m *quotav1.CheckRequest) { m.Descriptors[0].Entries[0].Value = make([]byte, 1025) }, "descriptors[0].entries[0].value: has 1025 bytes"},
		{"largest cost", func(m *quotav1.CheckRequest) { m.Cost = limit.MaxAmount }, ""},
		{"larger cost", func(m *quotav1.CheckRequest) { m.Cost = limit.MaxAmount + 1 }, "cost: is above 9223372036854775807"},
		{"negative fence", func(m *quotav1.CheckRequest) { m.FenceNs = proto.Int64(-1) }, "fence_ns: is negative"},
		{"a resolution", resolved(func(*quotav1.ResolvedPolicy) {}), ""},
		{"resolution of another descriptor", resolved(func(p *quotav1.ResolvedPolicy) { p.DescriptorIndex = 1 }), "resolution.policies[0].descriptor_index: is 1"},
		{"huge index", resolved(func(p *quotav1.ResolvedPolicy) { p.DescriptorIndex = math.MaxUint32 }), "resolution.policies[0].descriptor_index"},
		{"policy without namespace", resolved(func(p *quotav1.ResolvedPolicy) { p.Policy = "conversions" }), "resolution.policies[0].policy: is not"},
		{"short revision", resolved(func(p *quotav1.ResolvedPolicy) { p.Revision = revision[1:] }), "resolution.policies[0].revision: has 7 bytes"},
		{"long key", resolved(func(p *quotav1.ResolvedPolicy) { p.Key = make([]byte, 32<<10+1) }), "resolution.policies[0].key: has"},
		{"partition out of range", resolved(func(p *quotav1.ResolvedPolicy) { p.Partition = 4096 }), "resolution.policies[0].partition: is 4096"},
		{"more policies than descriptors", func(m *quotav1.CheckRequest) {
			m.Resolution = &quotav1.Resolution{Policies: make([]*quotav1.ResolvedPolicy, 2)}
		}, "resolution.policies: has 2 policies for 1 descriptors"},
		{"the last partition", func(m *quotav1.CheckRequest) { m.Partition = proto.Uint32(4095) }, ""},
		{"no such partition", func(m *quotav1.CheckRequest) { m.Partition = proto.Uint32(4096) }, "partition: is 4096, not below 4096"},
		{"one descriptor twice", func(m *quotav1.CheckRequest) {
			m.Descriptors = append(m.Descriptors, m.Descriptors[0])
			p := &quotav1.ResolvedPolicy{Policy: "media/conversions", Revision: revision}
			m.Resolution = &quotav1.Resolution{Policies: []*quotav1.ResolvedPolicy{p, p}}
		}, "resolution.policies[1].descriptor_index: is not above"},
	} {
		var asked recorder
		m := checkOf("u42")
		c.change(m)
		_, err := asked.node().Service().Check(t.Context(), m)
		switch {
		case c.want == "" && (err != nil || len(asked.requests) != 1):
			t.Errorf("%s: %v", c.name, err)
		case c.want != "":
			if f := failureIn(t, err); !strings.HasPrefix(f.GetMessage(), c.want) || f.Partition != nil ||
				f.GetReason() != quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT || status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s: %v", c.name, f)
			}
			if len(asked.requests) != 0 {
				t.Errorf("%s: was asked for all the same", c.name)
			}
		}
	}
}

// TestTheOnlyDomainMayBeLeftOut: where there are several, nobody guesses.
func TestTheOnlyDomainMayBeLeftOut(t *testing.T) {
	for _, domains := range [][]string{{"video-api"}, {"a", "b"}, {}} {
		var asked recorder
		n := asked.node()
		n.domains = domains
		m := checkOf("u42")
		m.Domain = ""
		_, err := n.Service().Check(t.Context(), m)
		_, inspected := n.Service().Inspect(t.Context(), &quotav1.InspectRequest{Descriptor_: m.Descriptors[0]})
		if len(domains) == 1 {
			if err != nil || inspected != nil || asked.requests[0].Domain != "video-api" || asked.inspected[0] != "video-api" {
				t.Errorf("one domain: %v, %v", err, inspected)
			}
			continue
		}
		if status.Code(err) != codes.InvalidArgument || status.Code(inspected) != codes.InvalidArgument || len(asked.requests)+len(asked.inspected) > 0 {
			t.Errorf("%d domains: %v, %v", len(domains), err, inspected)
		}
	}
}

// TestACheckArrivesAsItWasSent: what the wire has is what the partition gets, sorted.
func TestACheckArrivesAsItWasSent(t *testing.T) {
	var asked recorder
	m := &quotav1.CheckRequest{
		Domain: "video-api", Cost: 7, DecisionId: []byte("0123456789abcdef"), FenceNs: proto.Int64(42),
		Descriptors: []*quotav1.Descriptor{{Entries: []*quotav1.Entry{entry("b", "2"), entry("a", "\x00\xff")}}, {}},
		Partition:   proto.Uint32(3), Peek: true,
		Resolution: &quotav1.Resolution{SetEpoch: 5, SetVersion: 6, Policies: []*quotav1.ResolvedPolicy{{
			DescriptorIndex: 1, Policy: "media/conversions", Revision: binary.BigEndian.AppendUint64(nil, 99), Key: []byte("k"), Partition: 3,
		}}},
	}
	if _, err := asked.node().Service().Check(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r := asked.requests[0]
	want := keyspace.Descriptor{{Name: "a", Value: "\x00\xff"}, {Name: "b", Value: "2"}}
	if r.Domain != "video-api" || r.Cost != 7 || string(r.ID[:]) != "0123456789abcdef" || r.Fence != 42 || r.Unfenced ||
		len(r.Descriptors) != 2 || fmt.Sprint(r.Descriptors[0]) != fmt.Sprint(want) || len(r.Descriptors[1]) != 0 {
		t.Errorf("asked for %+v", r)
	}
	if r.To != 3 || !r.Peek || r.Asked.Version != (fsm.Version{Epoch: 5, Number: 6}) {
		t.Errorf("asked for %+v", r)
	}
	p := r.Asked.Policies
	if len(p) != 1 || p[0].Descriptor != 1 || p[0].Namespace != "media" || p[0].Name != "conversions" ||
		p[0].Revision != 99 || string(p[0].Key) != "k" || p[0].Partition != 3 {
		t.Errorf("resolved to %+v", p)
	}
	if _, err := asked.node().Service().Check(t.Context(), checkOf("u42")); err != nil {
		t.Fatal(err)
	}
	if r := asked.requests[1]; r.Cost != 1 || !r.Unfenced || r.Asked != nil || r.To != partition.AnyPartition || r.Peek {
		t.Errorf("a bare check asks for %+v", r)
	}
}

// TestDED09IDsAreSixteenBytesOrNone: any bytes, compared byte for byte, and of no other length.
func TestDED09IDsAreSixteenBytesOrNone(t *testing.T) {
	for name, id := range map[string][]byte{
		"plain": []byte("R1R1R1R1R1R1R1R1"), "other case": []byte("r1R1R1R1R1R1R1R1"), "spaces": bytes.Repeat([]byte(" "), 16),
		"NUL": make([]byte, 16), "not UTF-8": bytes.Repeat([]byte{0xff}, 16),
	} {
		var asked recorder
		m := checkOf("u42")
		m.DecisionId = id
		response, err := asked.node().Service().Check(t.Context(), m)
		if err != nil || !bytes.Equal(response.GetAnswer().GetDecisionId(), id) || !bytes.Equal(asked.requests[0].ID[:], id) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !asked.requests[0].Unfenced {
			t.Errorf("%s: an id without a fence counts as resendable", name)
		}
	}
	for _, n := range []int{1, 15, 17, 255, 256, 1 << 20} {
		var asked recorder
		m := checkOf("u42")
		m.DecisionId = bytes.Repeat([]byte("x"), n)
		_, err := asked.node().Service().Check(t.Context(), m)
		if f := failureIn(t, err); !strings.HasPrefix(f.GetMessage(), "decision_id: has ") || len(asked.requests) != 0 {
			t.Errorf("%d bytes: %v", n, f)
		}
	}
	var asked recorder
	n := asked.node()
	for range 2 {
		if _, err := n.Service().Check(t.Context(), checkOf("u42")); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := asked.requests[0].ID, asked.requests[1].ID; a == b || a == [16]byte{} {
		t.Errorf("made the ids %x and %x", a, b)
	}
}

// TestDeadlinesAreReadingsOfTheMonotonicClock made at receipt: what is left of the call's, at most MaxTimeout.
func TestDeadlinesAreReadingsOfTheMonotonicClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked recorder
		n := asked.node()
		for _, left := range []time.Duration{time.Nanosecond, time.Second, server.MaxTimeout, time.Hour, 0} {
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			want := min(left, server.MaxTimeout)
			if left > 0 {
				ctx, cancel = context.WithTimeout(ctx, left)
			} else {
				want = server.MaxTimeout
			}
			if _, err := n.Service().Check(ctx, checkOf("u42")); err != nil {
				t.Fatal(err)
			}
			cancel()
			if got := asked.requests[len(asked.requests)-1].Deadline; got != n.clock+int64(want) {
				t.Errorf("with %v left: a deadline in %v, want %v", left, time.Duration(got-n.clock), want)
			}
		}
	})
}

// TestACallThatNobodyAnswersEndsWithItsDeadline and leaves its outcome open.
func TestACallThatNobodyAnswersEndsWithItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(&script{submit: func([]*partition.Call) {}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := n.Service().Check(ctx, checkOf("u42"))
		if f := failureIn(t, err); f.GetReason() != quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN || f.Partition != nil {
			t.Errorf("failure %v", f)
		}
	})
}

// FuzzCheckRequest: whatever a message holds, the partition gets only what is within its bounds, and what
// is refused is refused without telling a value.
func FuzzCheckRequest(f *testing.F) {
	for _, m := range []*quotav1.CheckRequest{{}, checkOf("u42"), {
		Domain: "d", Cost: 3, DecisionId: make([]byte, 16), FenceNs: proto.Int64(1),
		Descriptors: []*quotav1.Descriptor{{Entries: []*quotav1.Entry{entry("a", "1"), entry("a", "2")}}},
		Resolution:  &quotav1.Resolution{Policies: []*quotav1.ResolvedPolicy{{Policy: "a/b", Revision: make([]byte, 8)}}},
	}} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	var asked recorder
	service := asked.node().Service()
	f.Fuzz(func(t *testing.T, b []byte) {
		asked.requests = nil
		m := &quotav1.CheckRequest{}
		if proto.Unmarshal(b, m) != nil {
			t.Skip("not a message")
		}
		_, err := service.Check(t.Context(), m)
		if err != nil {
			if failure := failureIn(t, err); failure.GetReason() != quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT ||
				failure.GetMessage() == "" || len(asked.requests) != 0 {
				t.Fatalf("failure %v after %d calls", failure, len(asked.requests))
			}
			return
		}
		r := asked.requests[0]
		if r.Cost < 1 || r.Cost > limit.MaxAmount || r.Fence < 0 || len(r.Domain) < 1 || len(r.Domain) > 253 ||
			len(r.Descriptors) < 1 || len(r.Descriptors) > keyspace.MaxDescriptors || len(r.Descriptors) != len(m.GetDescriptors()) {
			t.Fatalf("asked for %+v", r)
		}
		for i, d := range r.Descriptors {
			sameEntries(t, d, m.GetDescriptors()[i].GetEntries())
		}
	})
}

// sameEntries holds a descriptor to what the message had, one by one.
func sameEntries(t *testing.T, d keyspace.Descriptor, want []*quotav1.Entry) {
	t.Helper()
	if len(d) != len(want) {
		t.Fatalf("%d entries of %d", len(d), len(want))
	}
	for i, e := range want {
		if got, ok := d.Get(e.GetName()); !ok || got != string(e.GetValue()) || len(got) > 1024 || len(e.GetName()) > 128 {
			t.Fatalf("entry %d is not there, or out of bounds", i)
		}
		if i > 0 && d[i-1].Name >= d[i].Name {
			t.Fatal("not sorted, or a name twice")
		}
	}
}
