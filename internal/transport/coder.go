package transport

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// errMalformed says that bytes from a peer are not what this version writes.
var errMalformed = errors.New("malformed bytes")

// coder walks the fields of a message in their order on the wire. The same walk measures, writes and
// reads, so that the three can't drift apart: a field is named once (see codec.go).
//
// Every value has one encoding, and reading refuses all others. Only reading changes what the walk is
// given: Raft hands one request to several goroutines that send it at once.
type coder struct {
	mode  mode
	bytes []byte // what was written so far, or what is yet to be read
	size  int    // what was measured so far
	err   error  // of reading; the first one stays
}

type mode int

const (
	measuring mode = iota
	writing
	reading
)

// finish reports the first error of reading; bytes that are left over are one.
func (c *coder) finish() error {
	if c.err == nil && len(c.bytes) > 0 {
		c.fail()
	}
	return c.err
}

func (c *coder) fail() {
	c.err, c.bytes = errMalformed, nil
}

// take cuts the next n bytes off what is to be read, or returns nil after an error.
func (c *coder) take(n int) []byte {
	if c.err != nil || n > len(c.bytes) {
		c.fail()
		return nil
	}
	taken := c.bytes[:n:n]
	c.bytes = c.bytes[n:]
	return taken
}

func (c *coder) u8(v *uint8) {
	switch c.mode {
	case measuring:
		c.size++
	case writing:
		c.bytes = append(c.bytes, *v)
	case reading:
		if b := c.take(1); b != nil {
			*v = b[0]
		}
	}
}

func (c *coder) u32(v *uint32) {
	switch c.mode {
	case measuring:
		c.size += 4
	case writing:
		c.bytes = binary.BigEndian.AppendUint32(c.bytes, *v)
	case reading:
		if b := c.take(4); b != nil {
			*v = binary.BigEndian.Uint32(b)
		}
	}
}

func (c *coder) u64(v *uint64) {
	switch c.mode {
	case measuring:
		c.size += 8
	case writing:
		c.bytes = binary.BigEndian.AppendUint64(c.bytes, *v)
	case reading:
		if b := c.take(8); b != nil {
			*v = binary.BigEndian.Uint64(b)
		}
	}
}

// signed codes an integer that may be negative, or whose type is the library's.
func signed[T ~int | ~int64](c *coder, v *T) {
	u := uint64(*v)
	c.u64(&u)
	if c.mode == reading {
		*v = T(u)
	}
}

func (c *coder) flag(v *bool) {
	var b uint8
	if *v {
		b = 1
	}
	c.u8(&b)
	if c.mode != reading {
		return
	}
	if b > 1 {
		c.fail()
		return
	}
	*v = b == 1
}

// count codes how many elements follow, and tells nil from empty. When reading, each of them takes at
// least least bytes, so that a count can't claim more memory than the message brought.
func (c *coder) count(n int, isNil bool, least int) (count int, none bool) {
	var u uint32
	if !isNil {
		u = uint32(n) + 1
	}
	c.u32(&u)
	if c.mode != reading {
		return n, isNil
	}
	if u == 0 || c.err != nil {
		return 0, true
	}
	if uint64(u-1)*uint64(least) > uint64(len(c.bytes)) {
		c.fail()
		return 0, true
	}
	return int(u - 1), false
}

// blob codes bytes. What was read lies within the message, and can't be appended into what follows.
func (c *coder) blob(v *[]byte) {
	n, none := c.count(len(*v), *v == nil, 1)
	switch c.mode {
	case measuring:
		c.size += n
	case writing:
		c.bytes = append(c.bytes, *v...)
	case reading:
		if *v = nil; !none {
			*v = c.take(n)
		}
	}
}

// text codes a string as bytes that are never nil.
func (c *coder) text(v *string) {
	b := []byte(*v)
	c.blob(&b)
	if c.mode != reading {
		return
	}
	if b == nil {
		c.fail()
		return
	}
	*v = string(b)
}

// moment codes a point of time as UTC, to the nanosecond, without its monotonic reading.
func (c *coder) moment(v *time.Time) {
	seconds, nanos := uint64(v.Unix()), uint32(v.Nanosecond())
	c.u64(&seconds)
	c.u32(&nanos)
	if c.mode != reading || c.err != nil {
		return
	}
	if nanos >= uint32(time.Second) {
		c.fail()
		return
	}
	*v = time.Unix(int64(seconds), int64(nanos)).UTC()
	if v.Unix() != int64(seconds) {
		c.fail() // beyond what a time.Time holds
	}
}

// leastLog is the length of an entry without data.
const leastLog = 8 + 8 + 1 + 4 + 4 + 8 + 4

func (c *coder) logs(v *[]*raft.Log) {
	n, none := c.count(len(*v), *v == nil, leastLog)
	if c.mode == reading {
		*v = nil
		if none {
			return
		}
		entries := make([]raft.Log, n)
		*v = make([]*raft.Log, n)
		for i := range entries {
			(*v)[i] = &entries[i]
		}
	}
	for _, l := range *v {
		c.log(l)
	}
}

func (c *coder) log(l *raft.Log) {
	c.u64(&l.Index)
	c.u64(&l.Term)
	c.u8((*uint8)(&l.Type))
	c.blob(&l.Data)
	c.blob(&l.Extensions)
	c.moment(&l.AppendedAt)
}
