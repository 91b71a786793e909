package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// The client shares its machine with the nodes that it measures, so it writes and reads the messages of
// CheckStream by hand: what is the same in all checks is encoded once, and of an answer no more is looked at
// than a caller needs in order to know what it may do. The tests hold this against the generated code.

// form is the encoded check of a workload: what follows its tag, with places for what differs.
type form struct {
	rest                []byte
	value, id, homeByte int // where those begin in rest
}

const (
	keyDigits = 8
	valueLen  = 1 + keyDigits
	idLen     = 16
)

// The field numbers of quota.proto.
const (
	fieldChecks, fieldAnswers                       = 1, 1
	fieldTag, fieldCheck, fieldTimeout              = 1, 2, 3
	fieldDomain, fieldDescriptors, fieldID, fieldTo = 1, 2, 4, 7
	fieldEntries, fieldName, fieldValue             = 1, 1, 2
	fieldAnswer, fieldFailure                       = 2, 3
	fieldDecision, fieldReason, fieldFailureReason  = 1, 2, 2
	fieldFailureMessage                             = 3
	mostPartitions                                  = 128 // whose numbers take one byte
)

// newForm encodes a check of one descriptor with one entry of that name.
func newForm(domain, entry string, timeoutNs int64) *form {
	e := appendBytes(nil, fieldName, []byte(entry))
	e = appendBytes(e, fieldValue, make([]byte, valueLen))
	d := appendBytes(nil, fieldEntries, e)
	check := appendBytes(nil, fieldDomain, []byte(domain))
	check = appendBytes(check, fieldDescriptors, d)
	value := len(check) - valueLen
	check = appendBytes(check, fieldID, make([]byte, idLen))
	id := len(check) - idLen
	check = protowire.AppendTag(check, fieldTo, protowire.VarintType)
	check = append(check, 0)
	f := &form{rest: appendBytes(nil, fieldCheck, check)}
	head := len(f.rest) - len(check)
	f.value, f.id, f.homeByte = head+value, head+id, head+len(check)-1
	f.rest = protowire.AppendTag(f.rest, fieldTimeout, protowire.VarintType)
	f.rest = protowire.AppendVarint(f.rest, uint64(timeoutNs))
	return f
}

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendBytes(b, v)
}

// question is one check of a workload.
type question struct {
	tag    uint32
	key    uint32
	family byte // which million of keys
	home   byte // the partition
	id     [idLen]byte
}

// append adds the check to a CheckStreamRequest.
func (f *form) append(b []byte, q *question) []byte {
	b = protowire.AppendTag(b, fieldChecks, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(1+protowire.SizeVarint(uint64(q.tag))+len(f.rest)))
	b = protowire.AppendTag(b, fieldTag, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(q.tag))
	at := len(b)
	b = append(b, f.rest...)
	putKey(b[at+f.value:], q.family, q.key)
	copy(b[at+f.id:], q.id[:])
	b[at+f.homeByte] = q.home
	return b
}

// putKey writes a key's text: its family's letter and its number.
func putKey(b []byte, family byte, key uint32) {
	b[0] = family
	for i := keyDigits; i > 0; i-- {
		b[i] = byte('0' + key%10)
		key /= 10
	}
}

// mix is a permutation of all 64-bit numbers, so that what it makes of different ones differs.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// ids makes decision ids of which no two are alike: half of each is the run's, half is a permuted count.
type ids struct {
	run, next uint64
}

func (g *ids) put(id *[idLen]byte) {
	binary.BigEndian.PutUint64(id[:], g.run)
	binary.BigEndian.PutUint64(id[8:], mix(g.next))
	g.next++
}

// verdict is what a caller makes of an answer.
type verdict uint8

const (
	failed verdict = iota
	allowed
	denied
)

// reply is one answer of a stream.
type reply struct {
	tag     uint32
	verdict verdict
	replay  bool
	failure quotav1.FailureReason
}

// replies are those of a message; the room for them is used again.
type replies struct {
	list    []reply
	message string // of the newest failure
}

var errGarbled = errors.New("a message of the node can't be read")

// read takes in a CheckStreamResponse.
func (r *replies) read(b []byte) error {
	r.list = r.list[:0]
	return eachField(b, func(field protowire.Number, _ uint64, v []byte) error {
		if field != fieldAnswers {
			return fmt.Errorf("%w: field %d of the message", errGarbled, field)
		}
		var one reply
		if err := r.readTagged(&one, v); err != nil {
			return err
		}
		r.list = append(r.list, one)
		return nil
	})
}

func (r *replies) readTagged(one *reply, b []byte) error {
	return eachField(b, func(field protowire.Number, n uint64, v []byte) error {
		switch field {
		case fieldTag:
			one.tag = uint32(n)
		case fieldAnswer:
			return one.readAnswer(v)
		case fieldFailure:
			one.verdict = failed
			return eachField(v, func(field protowire.Number, n uint64, v []byte) error {
				switch field {
				case fieldFailureReason:
					one.failure = quotav1.FailureReason(n)
				case fieldFailureMessage:
					r.message = string(v)
				}
				return nil
			})
		}
		return nil
	})
}

// readAnswer looks at the decision alone: it is the first field, and fields come in order. It goes on to the
// mark of a replay, which no check of the bench may bear, only as far as it must.
func (one *reply) readAnswer(b []byte) error {
	return eachField(b, func(field protowire.Number, n uint64, _ []byte) error {
		switch field {
		case fieldDecision:
			switch quotav1.Decision(n) {
			case quotav1.Decision_DECISION_ALLOW:
				one.verdict = allowed
			case quotav1.Decision_DECISION_DENY:
				one.verdict = denied
			}
		case fieldReplayed:
			one.replay = n != 0
		}
		return nil
	})
}

const fieldReplayed = 16

// eachField goes through the fields of a message: n is a varint's value, v the bytes of what has a length.
func eachField(b []byte, visit func(field protowire.Number, n uint64, v []byte) error) error {
	for len(b) > 0 {
		field, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return errGarbled
		}
		b = b[size:]
		var n uint64
		var v []byte
		switch kind {
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			v, size = protowire.ConsumeBytes(b)
		default:
			size = protowire.ConsumeFieldValue(field, kind, b)
		}
		if size < 0 {
			return errGarbled
		}
		b = b[size:]
		if err := visit(field, n, v); err != nil {
			return err
		}
	}
	return nil
}

// rawCodec sends a *[]byte as it is, which must come from the pool, and receives into *replies.
type rawCodec struct{ pool *bufferPool }

// Name implements encoding.CodecV2.
func (rawCodec) Name() string { return "proto" } // what is on the wire

// Marshal implements encoding.CodecV2.
func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.NewBuffer(v.(*[]byte), c.pool)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (c rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	return v.(*replies).read(b.ReadOnlyData())
}

// bufferPool keeps the buffers of requests; gRPC gives each back once it is written.
type bufferPool struct{ pool sync.Pool }

const bufferBytes = 128 << 10

// Get implements mem.BufferPool.
func (p *bufferPool) Get(length int) *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok && cap(*b) >= length {
		*b = (*b)[:length]
		return b
	}
	b := make([]byte, length, max(length, bufferBytes))
	return &b
}

// Put implements mem.BufferPool.
func (p *bufferPool) Put(b *[]byte) { p.pool.Put(b) }
