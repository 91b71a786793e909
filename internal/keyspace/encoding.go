package keyspace

import (
	"encoding/binary"
	"errors"
)

// ErrEncoding is what [SplitValues] returns for bytes that [AppendValues] can't have written.
var ErrEncoding = errors.New("keyspace: not an encoding of key values")

// AppendQuotaKey appends the full identity of an allowance: namespace, quota name, then the name and value
// of each entry of key, every part with its length in front as a uvarint. Different arguments never give
// the same bytes.
func AppendQuotaKey(dst []byte, namespace, quota string, key Descriptor) []byte {
	dst = appendPart(dst, namespace)
	dst = appendPart(dst, quota)
	for _, e := range key {
		dst = appendPart(dst, e.Name)
		dst = appendPart(dst, e.Value)
	}
	return dst
}

// AppendValues appends the values that d has for names, in the order of names, each with its length in
// front as a uvarint; a missing entry counts as empty. Names must be a quota's key names, sorted: a quota
// never changes them, so beside its quota's number this is as exact as the full key, and shorter.
func AppendValues(dst []byte, d Descriptor, names []string) []byte {
	for _, name := range names {
		value, _ := d.Get(name)
		dst = appendPart(dst, value)
	}
	return dst
}

// SplitValues appends to dst the values that [AppendValues] put into b. They share b's memory. It returns
// [ErrEncoding] for a length that isn't in its shortest form, exceeds [MaxValueLen] or runs beyond b, so
// that every accepted b is the one encoding of its values.
func SplitValues(dst [][]byte, b []byte) ([][]byte, error) {
	for len(b) > 0 {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > MaxValueLen || n > uint64(len(b)-size) || size != uvarintLen(n) {
			return nil, ErrEncoding
		}
		b = b[size:]
		dst = append(dst, b[:n:n])
		b = b[n:]
	}
	return dst, nil
}

func appendPart(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// uvarintLen is the number of bytes of n's shortest uvarint.
func uvarintLen(n uint64) int {
	size := 1
	for n >= 0x80 {
		n >>= 7
		size++
	}
	return size
}
