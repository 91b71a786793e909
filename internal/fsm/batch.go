package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/quorate/quorate/internal/keyspace"
)

// Limits of a batch. The leader keeps to them; apply refuses more as damage.
const (
	MaxChecks  = 1024
	MaxCharges = keyspace.MaxDescriptors // of one check
)

// ID is a decision id: it names one allow within a domain.
type ID [16]byte

// Check is one question as the leader has resolved it.
type Check struct {
	ID ID
	// Digest identifies what was asked: the same id with another digest is a conflict.
	Digest uint64
	// Fence is the newest logged decision time known when the id was first sent.
	Fence int64
	// Domain is the domain's place in the policy set that the batch names.
	Domain int32
	// Charges are what the check takes, at least one.
	Charges []Charge
}

// Charge is one policy's part of a check. Apply never resolves: it looks amounts
// up by these numbers, in the set that the batch names.
type Charge struct {
	Policy   int32 // place in the policy set
	Tier     int32 // place in the policy's tiers, or -1
	Override int32 // place in the policy's overrides, or -1
	Slot     uint16
	Cost     uint64
	// Key holds the values of the key entries, keyspace.AppendValues.
	Key []byte
}

// A batch's body is a 32-byte head, a fixed-size record per check, one per
// charge, and the keys end to end:
//
//	head    epoch u64, number u64 of the set; checks u32, charges u32, key bytes u32, zero u32
//	check   id 16, digest u64, fence i64, domain u32, charges u16, zero u16
//	charge  cost u64, policy u32, tier u32 + 1, override u32 + 1, key length u16, slot u16
const (
	batchHead   = 32
	checkBytes  = 40
	chargeBytes = 24
)

// BatchEntry seals checks into one entry.
func BatchEntry(h Header, v Version, checks []*Check) []byte {
	h.Kind = KindBatch
	charges, keys := 0, 0
	for _, c := range checks {
		charges += len(c.Charges)
		for i := range c.Charges {
			keys += len(c.Charges[i].Key)
		}
	}
	e := make([]byte, headerBytes, headerBytes+batchHead+len(checks)*checkBytes+charges*chargeBytes+keys)
	le := binary.LittleEndian
	e = le.AppendUint64(e, v.Epoch)
	e = le.AppendUint64(e, v.Number)
	e = le.AppendUint32(e, uint32(len(checks)))
	e = le.AppendUint32(e, uint32(charges))
	e = le.AppendUint32(e, uint32(keys))
	e = le.AppendUint32(e, 0)
	for _, c := range checks {
		e = appendCheck(e, c)
	}
	for _, c := range checks {
		for i := range c.Charges {
			e = appendCharge(e, &c.Charges[i])
		}
	}
	for _, c := range checks {
		for i := range c.Charges {
			e = append(e, c.Charges[i].Key...)
		}
	}
	return seal(e, h)
}

func appendCheck(e []byte, c *Check) []byte {
	le := binary.LittleEndian
	e = append(e, c.ID[:]...)
	e = le.AppendUint64(e, c.Digest)
	e = le.AppendUint64(e, uint64(c.Fence))
	e = le.AppendUint32(e, uint32(c.Domain))
	return le.AppendUint32(e, uint32(len(c.Charges)))
}

func appendCharge(e []byte, c *Charge) []byte {
	le := binary.LittleEndian
	e = le.AppendUint64(e, c.Cost)
	e = le.AppendUint32(e, uint32(c.Policy))
	e = le.AppendUint32(e, uint32(c.Tier+1))
	e = le.AppendUint32(e, uint32(c.Override+1))
	e = le.AppendUint16(e, uint16(len(c.Key)))
	return le.AppendUint16(e, c.Slot)
}

// batch reads the body of a batch, a check at a time and without allocating.
type batch struct {
	version Version
	count   int // checks
	checks  []byte
	charges []byte
	keys    []byte
	scratch [MaxCharges]Charge
}

// open verifies that the parts of body add up. What it lets through, next can
// read to the end.
func (b *batch) open(body []byte) error {
	if len(body) < batchHead {
		return fmt.Errorf("%w: a batch of %d bytes", ErrDamaged, len(body))
	}
	le := binary.LittleEndian
	b.version = Version{Epoch: le.Uint64(body), Number: le.Uint64(body[8:])}
	checks, charges, keys := uint64(le.Uint32(body[16:])), uint64(le.Uint32(body[20:])), uint64(le.Uint32(body[24:]))
	size := batchHead + checks*checkBytes + charges*chargeBytes + keys
	if checks > MaxChecks || size != uint64(len(body)) || le.Uint32(body[28:]) != 0 {
		return fmt.Errorf("%w: a batch of %d checks, %d charges and %d key bytes in %d bytes", ErrDamaged, checks, charges, keys, len(body))
	}
	rest := body[batchHead:]
	b.count = int(checks)
	b.checks, rest = rest[:checks*checkBytes], rest[checks*checkBytes:]
	b.charges, b.keys = rest[:charges*chargeBytes], rest[charges*chargeBytes:]
	return b.verifyCounts()
}

func (b *batch) verifyCounts() error {
	le := binary.LittleEndian
	charges, keys := 0, 0
	for c := b.checks; len(c) > 0; c = c[checkBytes:] {
		n := le.Uint32(c[36:])
		if n == 0 || n > MaxCharges {
			return fmt.Errorf("%w: a check with %d charges", ErrDamaged, n)
		}
		charges += int(n)
	}
	for c := b.charges; len(c) > 0; c = c[chargeBytes:] {
		keys += int(le.Uint16(c[20:]))
	}
	if charges*chargeBytes != len(b.charges) || keys != len(b.keys) {
		return fmt.Errorf("%w: a batch whose records name %d charges and %d key bytes", ErrDamaged, charges, keys)
	}
	return nil
}

// next reads the next check into c; its charges are good until the next call.
func (b *batch) next(c *Check) bool {
	if len(b.checks) == 0 {
		return false
	}
	le := binary.LittleEndian
	r := b.checks[:checkBytes]
	b.checks = b.checks[checkBytes:]
	copy(c.ID[:], r)
	c.Digest = le.Uint64(r[16:])
	c.Fence = int64(le.Uint64(r[24:]))
	c.Domain = int32(le.Uint32(r[32:]))
	c.Charges = b.scratch[:le.Uint32(r[36:])]
	for i := range c.Charges {
		b.nextCharge(&c.Charges[i])
	}
	return true
}

func (b *batch) nextCharge(c *Charge) {
	le := binary.LittleEndian
	r := b.charges[:chargeBytes]
	b.charges = b.charges[chargeBytes:]
	c.Cost = le.Uint64(r)
	c.Policy = int32(le.Uint32(r[8:]))
	c.Tier = int32(le.Uint32(r[12:])) - 1
	c.Override = int32(le.Uint32(r[16:])) - 1
	c.Slot = le.Uint16(r[22:])
	n := le.Uint16(r[20:])
	c.Key, b.keys = b.keys[:n:n], b.keys[n:]
}

// CheckSize returns the bytes that a check adds to a batch.
func CheckSize(c *Check) int {
	size := checkBytes + len(c.Charges)*chargeBytes
	for i := range c.Charges {
		size += len(c.Charges[i].Key)
	}
	return size
}
