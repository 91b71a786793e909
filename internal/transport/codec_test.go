package transport

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// messages are blank values of everything that crosses the wire.
func messages() (all []any) {
	for o := op(1); newRequest(o) != nil; o++ {
		all = append(all, newRequest(o))
	}
	return append(all, new(raft.AppendEntriesResponse), new(raft.RequestVoteResponse),
		new(raft.RequestPreVoteResponse), new(raft.TimeoutNowResponse), new(raft.InstallSnapshotResponse))
}

// fill sets every field below v to a value of its own, so that two that were swapped show.
func fill(v reflect.Value, next *uint64) {
	*next++
	switch v.Kind() {
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(*next)
	case reflect.Int, reflect.Int64:
		v.SetInt(-int64(*next))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), next)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(fmt.Appendf(nil, "bytes %d", *next))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		for i := range v.Len() {
			fill(v.Index(i), next)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(int64(*next), 5).UTC()))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), next)
		}
	default:
		panic("a field of kind " + v.Kind().String())
	}
}

func encode(m any) []byte {
	c := coder{mode: writing}
	c.message(m)
	return c.bytes
}

func decode(b []byte, m any) error {
	c := coder{mode: reading, bytes: b}
	c.message(m)
	return c.finish()
}

// A field that a newer version of the library adds is set here too, and doesn't come back.
func TestEveryFieldOfEveryMessageCrosses(t *testing.T) {
	for _, sent := range messages() {
		t.Run(fmt.Sprintf("%T", sent), func(t *testing.T) {
			next := uint64(0)
			fill(reflect.ValueOf(sent).Elem(), &next)
			got := reflect.New(reflect.TypeOf(sent).Elem()).Interface()
			if err := decode(encode(sent), got); err != nil || !reflect.DeepEqual(got, sent) {
				t.Errorf("sent %+v\ngot  %+v, %v", sent, got, err)
			}
			single := coder{mode: measuring}
			if single.message(sent); single.size != len(encode(sent)) {
				t.Errorf("measured %d bytes, wrote %d", single.size, len(encode(sent)))
			}
			for n := range encode(sent) {
				if err := decode(encode(sent)[:n], reflect.New(reflect.TypeOf(sent).Elem()).Interface()); err == nil {
					t.Errorf("%d of %d bytes were taken for the whole", n, len(encode(sent)))
				}
			}
		})
	}
}

func TestNilEmptyAndZeroCrossAsTheyAre(t *testing.T) {
	for _, sent := range []*raft.AppendEntriesRequest{
		{},
		{Entries: []*raft.Log{}, Leader: []byte{}},
		{Entries: []*raft.Log{{}, {Data: []byte{}, AppendedAt: time.Date(9999, 1, 1, 0, 0, 0, 999_999_999, time.UTC)}}},
	} {
		var got raft.AppendEntriesRequest
		if err := decode(encode(sent), &got); err != nil || !reflect.DeepEqual(&got, sent) {
			t.Errorf("sent %+v\ngot  %+v, %v", sent, got, err)
		}
	}
}

func TestASecondEncodingOfAValueIsRefused(t *testing.T) {
	honest := encode(&raft.InstallSnapshotResponse{Success: true})
	flag := bytes.Clone(honest)
	flag[len(flag)-1] = 2
	moment := encode(&raft.AppendEntriesRequest{Entries: []*raft.Log{{}}})
	copy(moment[len(moment)-4:], []byte{0x3b, 0x9a, 0xca, 0x00}) // a second of nanoseconds
	for name, err := range map[string]error{
		"a flag of 2":       decode(flag, new(raft.InstallSnapshotResponse)),
		"a byte too many":   decode(append(bytes.Clone(honest), 0), new(raft.InstallSnapshotResponse)),
		"10^9 nanoseconds":  decode(moment, new(raft.AppendEntriesRequest)),
		"an op of its own":  func() error { _, _, err := decodeRequest([]byte{99, 0, 0, 0, 0, 0, 0, 0, 1}); return err }(),
		"a target of nil":   func() error { _, _, err := decodeRequest(make([]byte, 9)); return err }(),
		"an unknown status": decodeAnswer([]byte{99}, new(raft.RequestVoteResponse)),
		"no status":         decodeAnswer(nil, new(raft.RequestVoteResponse)),
	} {
		if !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A count of four billion entries in a message of few bytes must not cost memory.
func TestACountIsCheckedBeforeAnythingIsAllocated(t *testing.T) {
	b := encode(&raft.AppendEntriesRequest{})
	copy(b[len(b)-4:], []byte{0xff, 0xff, 0xff, 0xff})
	if n := testing.AllocsPerRun(10, func() { _ = decode(b, new(raft.AppendEntriesRequest)) }); n > 2 {
		t.Errorf("%v allocations", n)
	}
	if err := decode(b, new(raft.AppendEntriesRequest)); !errors.Is(err, errMalformed) {
		t.Error(err)
	}
}

func TestAnswersCarryStatusesErrorsAndTypes(t *testing.T) {
	long := strings.Repeat("x", 2*maxErrorText)
	for _, tc := range []struct {
		name string
		b    *buffer
		want string // of the error
	}{
		{"an answer", encodeAnswer(opVote, &raft.RequestVoteResponse{Term: 7}, nil), "<nil>"},
		{"an error", encodeAnswer(opVote, &raft.RequestVoteResponse{Term: 7}, errors.New("not now")), "not now"},
		{"an error without end", encodeAnswer(opVote, nil, errors.New(long)), long[:maxErrorText]},
		{"an answer to another request", encodeAnswer(opVote, new(raft.InstallSnapshotResponse), nil), "unexpected answer *raft.InstallSnapshotResponse"},
		{"an answer too long", encodeAnswer(opVote, &raft.RequestVoteResponse{Peers: make([]byte, maxFragment)}, nil), "unexpected answer *raft.RequestVoteResponse"},
		{"busy", encodeStatus(statusBusy, ""), ErrBusy.Error()},
		{"closed", encodeStatus(statusClosed, ""), ErrClosed.Error()},
		{"impostor", encodeStatus(statusImpostor, ""), ErrImpostor.Error()},
		{"absent", encodeStatus(statusAbsent, ""), ErrUnreachable.Error() + ": no such replica is on its node"},
	} {
		var got raft.RequestVoteResponse
		if err := decodeAnswer(tc.b.bytes, &got); fmt.Sprint(err) != tc.want || err == nil && got.Term != 7 {
			t.Errorf("%s: %+v, %v", tc.name, got, err)
		}
	}
}

// What the fuzzer finds readable must be exactly what would be written.
func FuzzDecodeRequest(f *testing.F) {
	for o := op(1); newRequest(o) != nil; o++ {
		m, next := newRequest(o), uint64(0)
		f.Add(mustEncode(envelope{target: "n1-0000000000000001"}, m))
		fill(reflect.ValueOf(m).Elem(), &next)
		f.Add(mustEncode(envelope{remaining: 5, target: ""}, m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, m, err := decodeRequest(b)
		if err == nil && !bytes.Equal(mustEncode(e, m), b) {
			t.Errorf("%x reads as %+v %+v, which is written as %x", b, e, m, mustEncode(e, m))
		}
	})
}

func mustEncode(e envelope, m any) []byte {
	b, err := encodeRequest(e, m, 1<<30)
	if err != nil {
		panic(err)
	}
	return b.bytes
}

func FuzzDecodeAnswer(f *testing.F) {
	for i, m := range messages()[5:] {
		next := uint64(0)
		fill(reflect.ValueOf(m).Elem(), &next)
		f.Add(uint8(i), encodeAnswer(op(i+1), m, nil).bytes)
	}
	f.Add(uint8(0), encodeStatus(statusError, "no").bytes)
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		m := messages()[5+which%5]
		if decodeAnswer(b, m) == nil && !bytes.Equal(encodeAnswer(op(which%5+1), m, nil).bytes, b) {
			t.Errorf("%x reads as %+v", b, m)
		}
	})
}
