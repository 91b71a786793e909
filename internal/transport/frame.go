package transport

import (
	"bufio"
	"encoding/binary"
	"io"
	"slices"
	"sync"
)

// A frame is a header of 24 bytes and up to maxFragment bytes of payload:
//
//	length  u32  of the payload
//	rest    u32  bytes of the same message in the frames that follow
//	kind    u8, then three zero bytes
//	group   u32  whose message it is; 0 where it is the connection's
//	id      u64  of the request; an answer carries its request's
//
// A long message is cut into frames so that messages of other groups go out in between.
const (
	headerSize  = 24
	maxFragment = 64 << 10
)

type kind = uint8

const (
	kindRequest kind = iota + 1
	kindAnswer       // always one frame
	kindPing         // asks whether anybody is there; also: a snapshot's receiver is at it
	kindPong
	kindChunk // of a snapshot
	kindEnd   // the snapshot was sent
	kindAbort // the snapshot ends before its end; why follows
)

type frame struct {
	kind         kind
	group        uint32
	id           uint64
	length, rest uint32
}

func (f frame) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, f.length)
	b = binary.BigEndian.AppendUint32(b, f.rest)
	b = append(b, f.kind, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, f.group)
	return binary.BigEndian.AppendUint64(b, f.id)
}

// parseFrame reads a header, and refuses what no peer of ours sends. No message is longer than limit.
func parseFrame(b []byte, limit int) (frame, error) {
	f := frame{
		length: binary.BigEndian.Uint32(b),
		rest:   binary.BigEndian.Uint32(b[4:]),
		kind:   b[8],
		group:  binary.BigEndian.Uint32(b[12:]),
		id:     binary.BigEndian.Uint64(b[16:]),
	}
	if b[9]|b[10]|b[11] != 0 || f.length > maxFragment || !f.fits(limit) {
		return frame{}, errMalformed
	}
	return f, nil
}

// fits checks a header against what its kind allows.
func (f frame) fits(limit int) bool {
	ofConnection := f.group == 0 && f.id == 0
	switch f.kind {
	case kindRequest:
		whole := uint64(f.length)+uint64(f.rest) <= uint64(limit)
		return f.length > 0 && whole && (f.rest == 0 || f.length == maxFragment)
	case kindAnswer:
		return f.length > 0 && f.rest == 0
	case kindPing, kindPong, kindEnd:
		return ofConnection && f.length == 0 && f.rest == 0
	case kindChunk:
		return ofConnection && f.length > 0 && f.rest == 0
	case kindAbort:
		return ofConnection && f.length <= maxErrorText && f.rest == 0
	}
	return false
}

// readFrame reads the next header.
func readFrame(r *bufio.Reader, limit int) (frame, error) {
	var b [headerSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return frame{}, err
	}
	return parseFrame(b[:], limit)
}

// trusted is how much memory a message gets for its announced length alone; the rest comes with its bytes.
const trusted = 1 << 20

// assembly puts the frames of one message together. A sender sends a group's messages one after another.
type assembly struct {
	open  bool
	skip  bool // reads the message without keeping it
	id    uint64
	rest  uint32
	bytes []byte
}

// take reads a frame's payload, and reports whether it was the message's last one. The caller takes
// bytes then, and may use the assembly for the next message.
func (a *assembly) take(f frame, r *bufio.Reader) (complete bool, err error) {
	switch {
	case !a.open:
		a.open, a.id, a.bytes = true, f.id, nil
		if !a.skip {
			a.bytes = make([]byte, 0, min(int(f.length)+int(f.rest), trusted))
		}
	case f.id != a.id || f.length > a.rest || f.rest != a.rest-f.length:
		return false, errMalformed
	}
	if a.skip {
		_, err = r.Discard(int(f.length))
	} else {
		from := len(a.bytes)
		a.bytes = slices.Grow(a.bytes, int(f.length))[:from+int(f.length)]
		_, err = io.ReadFull(r, a.bytes[from:])
	}
	if err != nil {
		return false, err
	}
	a.rest = f.rest
	a.open = a.rest > 0
	return !a.open, nil
}

// buffer is an encoded message on its way out, from a pool.
type buffer struct{ bytes []byte }

// maxPooled is the longest buffer worth keeping: an entry that is full.
const maxPooled = 1 << 20

var buffers sync.Pool

// takeBuffer returns an empty buffer with room for size bytes.
func takeBuffer(size int) *buffer {
	b, ok := buffers.Get().(*buffer)
	if !ok {
		b = new(buffer)
	}
	b.bytes = slices.Grow(b.bytes[:0], size)
	return b
}

// giveBack lets the buffer be used again. Its bytes must not be used any more.
func (b *buffer) giveBack() {
	if cap(b.bytes) <= maxPooled {
		buffers.Put(b)
	}
}
