package transport

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

func TestFrameHeaders(t *testing.T) {
	const limit = 1 << 20
	ok, bad := true, false
	for _, tc := range []struct {
		name string
		f    frame
		want bool
	}{
		{"a request", frame{kindRequest, 1, 2, 3, 0}, ok},
		{"a first part", frame{kindRequest, 1, 2, maxFragment, 1}, ok},
		{"a request as long as allowed", frame{kindRequest, 0, 0, maxFragment, limit - maxFragment}, ok},
		{"a longer one", frame{kindRequest, 0, 0, maxFragment, limit - maxFragment + 1}, bad},
		{"one whose length overflows", frame{kindRequest, 0, 0, maxFragment, 1<<32 - 1}, bad},
		{"a part that is not full", frame{kindRequest, 1, 2, 3, 1}, bad},
		{"an empty request", frame{kindRequest, 1, 2, 0, 0}, bad},
		{"an answer", frame{kindAnswer, 1, 2, maxFragment, 0}, ok},
		{"an answer in parts", frame{kindAnswer, 1, 2, maxFragment, 1}, bad},
		{"an empty answer", frame{kindAnswer, 1, 2, 0, 0}, bad},
		{"a ping", frame{kind: kindPing}, ok},
		{"a pong of a group", frame{kind: kindPong, group: 1}, bad},
		{"a ping with an id", frame{kind: kindPing, id: 1}, bad},
		{"a ping that brings something", frame{kind: kindPing, length: 1}, bad},
		{"a chunk", frame{kind: kindChunk, length: maxFragment}, ok},
		{"an empty chunk", frame{kind: kindChunk}, bad},
		{"a frame too long", frame{kind: kindChunk, length: maxFragment + 1}, bad},
		{"an end", frame{kind: kindEnd}, ok},
		{"an end with more", frame{kind: kindEnd, rest: 1}, bad},
		{"an abort", frame{kind: kindAbort, length: maxErrorText}, ok},
		{"an abort too long", frame{kind: kindAbort, length: maxErrorText + 1}, bad},
		{"no kind", frame{}, bad},
		{"a kind that isn't", frame{kind: kindAbort + 1}, bad},
	} {
		got, err := parseFrame(tc.f.appendTo(nil), limit)
		if (err == nil) != tc.want || tc.want && got != tc.f {
			t.Errorf("%s: %+v, %v", tc.name, got, err)
		}
	}
	padded := frame{kind: kindPing}.appendTo(nil)
	padded[10] = 1
	if _, err := parseFrame(padded, limit); err == nil {
		t.Error("padding that isn't zero was accepted")
	}
}

// framed cuts a message as a sender does.
func framed(id uint64, message []byte) (frames [][]byte) {
	p := &parcel{kind: kindRequest, id: id, buffer: &buffer{message}}
	for p.sent < len(message) {
		f, part := p.cut()
		frames = append(frames, append(f.appendTo(nil), part...))
	}
	return frames
}

// assemble reads frames of one group as a receiver does, and returns the messages.
func assemble(b []byte, limit int, skip bool) (messages [][]byte, err error) {
	r, part := bufio.NewReader(bytes.NewReader(b)), assembly{skip: skip}
	for {
		f, err := readFrame(r, limit)
		if err != nil {
			return messages, err
		}
		complete, err := part.take(f, r)
		if err != nil {
			return messages, err
		}
		if complete {
			messages = append(messages, part.bytes)
		}
	}
}

func TestMessagesAreCutAndPutTogether(t *testing.T) {
	var stream []byte
	sizes := []int{1, maxFragment - 1, maxFragment, maxFragment + 1, 5*maxFragment + 7, 3 << 20}
	for i, size := range sizes {
		for _, f := range framed(uint64(i), bytes.Repeat([]byte{byte(i + 1)}, size)) {
			stream = append(stream, f...)
		}
	}
	got, err := assemble(stream, 4<<20, false)
	if !errors.Is(err, io.EOF) || len(got) != len(sizes) {
		t.Fatalf("%d messages, %v", len(got), err)
	}
	for i, size := range sizes {
		if !bytes.Equal(got[i], bytes.Repeat([]byte{byte(i + 1)}, size)) {
			t.Errorf("message %d of %d bytes came back as %d bytes", i, size, len(got[i]))
		}
	}
	if got, err = assemble(stream, 4<<20, true); !errors.Is(err, io.EOF) || len(got) != len(sizes) || got[3] != nil {
		t.Errorf("skipped: %d messages, %v", len(got), err)
	}
}

func TestPartsThatDoNotJoinAreRefused(t *testing.T) {
	parts := framed(1, make([]byte, 3*maxFragment))
	another := framed(2, make([]byte, 3*maxFragment))
	short := framed(1, make([]byte, 1))
	for name, stream := range map[string][][]byte{
		"one left out":        {parts[0], parts[2]},
		"one twice":           {parts[0], parts[0]},
		"of two messages":     {parts[0], another[1]},
		"a whole one between": {parts[0], short[0]},
	} {
		if got, err := assemble(bytes.Join(stream, nil), 1<<20, false); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %d messages, %v", name, len(got), err)
		}
	}
}

// A length that was only announced must not cost memory.
func TestAnAnnouncedLengthCostsLittle(t *testing.T) {
	b := frame{kind: kindRequest, length: maxFragment, rest: maxMessage - maxFragment}.appendTo(nil)
	var part assembly
	f, err := parseFrame(b, maxMessage)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = part.take(f, bufio.NewReader(bytes.NewReader(nil))); !errors.Is(err, io.EOF) || cap(part.bytes) > trusted {
		t.Errorf("%v, %d bytes", err, cap(part.bytes))
	}
}

// What a receiver makes of any bytes must be what a slow and simple reading of the format says.
func FuzzFrames(f *testing.F) {
	f.Add(bytes.Join(framed(1, []byte("request")), nil))
	f.Add(bytes.Join(append(framed(1, make([]byte, maxFragment+1)), framed(2, []byte{1})...), nil))
	f.Add(frame{kind: kindPing}.appendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 1 << 18
		got, err := assemble(b, limit, false)
		if err == nil {
			t.Fatal("reading ended without an error")
		}
		for _, m := range got {
			if len(m) > limit {
				t.Fatalf("a message of %d bytes", len(m))
			}
		}
		want := 0
		for len(b) >= headerSize {
			n := binary.BigEndian.Uint32(b)
			rest := binary.BigEndian.Uint32(b[4:])
			if n > maxFragment || int(n) > len(b)-headerSize {
				break
			}
			if rest == 0 {
				want++
			}
			b = b[headerSize+n:]
		}
		if len(got) > want {
			t.Fatalf("%d messages of %d", len(got), want)
		}
	})
}
