package fsm

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/quorate/quorate/internal/limit"
)

// TestKeysFollowTheirBlocks: while keys come, grow and go, and blocks move into the holes
// that they leave, every key is found in its slot, and no two slots name one block.
func TestKeysFollowTheirBlocks(t *testing.T) {
	// A slot that names a block which has moved is met by the very next step of packing.
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("a key lost its block: %v", p)
		}
	}()
	rng := rand.New(rand.NewPCG(10, 11))
	k := newKeys([16]byte{7})
	slots := map[uint64]uint32{} // of the keys that are there, by number
	name := func(i uint64) []byte { return binary.BigEndian.AppendUint64(make([]byte, i%20), i) }
	for i := range uint64(6000) {
		key := name(i)
		slot := k.create(k.hash(3, key), 3, 1, key, true)
		k.expiry.push(due{second: rng.Uint32N(1000), slot: slot})
		slots[i] = slot
		for range rng.IntN(4) {
			l := k.block(slot).log()
			k.logFor(slot, l.Need(int64(i), limit.MaxAmount/8)).Append(int64(i), limit.MaxAmount/8)
		}
		for range i / 1000 % 2 * 2 { // every second thousand two go for each that comes
			if k.live > 10 {
				b := k.block(k.expiry.first().slot)
				delete(slots, binary.BigEndian.Uint64(b.key()[b.keyLen()-8:]))
				k.removeFirst()
			}
		}
		if i%50 == 0 {
			k.consistent(t, slots, name)
		}
		if i%500 == 0 {
			k.freeze()
		}
	}
}

// TestTheRightKeyFollowsItsBlock: of two keys that look alike to the index, the one whose
// block moves is told.
func TestTheRightKeyFollowsItsBlock(t *testing.T) {
	k := newKeys([16]byte{7})
	slots := map[uint64]uint32{}
	name := func(i uint64) []byte { return binary.BigEndian.AppendUint64(nil, i) }
	hash := func(i uint64) uint64 { return k.hash(3, name(i)) }
	add := func(i uint64) {
		slots[i] = k.create(hash(i), 3, 1, name(i), true)
		k.expiry.push(due{second: uint32(i % 1000), slot: slots[i]})
	}
	const others = 500
	alike := uint64(1999) // goes last, as 999 does
	for tagOf(hash(alike)) != tagOf(hash(999)) || homeGroup(hash(alike)) != homeGroup(hash(999)) {
		alike += 1000
	}
	add(999)
	for i := range uint64(others) {
		add(i)
	}
	add(alike)
	for i := range uint64(others) {
		delete(slots, i)
		k.removeFirst()
		k.consistent(t, slots, name)
	}
	if ref := *k.slots.at(slots[alike]); ref.number() > others {
		t.Error("the last block never moved")
	}
}

func (k *keys) consistent(t *testing.T, slots map[uint64]uint32, name func(uint64) []byte) {
	t.Helper()
	seen := map[blockRef]bool{}
	for i, slot := range slots {
		ref := *k.slots.at(slot)
		if n := k.blocks.classes[ref.class()].n; ref.number() >= n || seen[ref] {
			t.Fatalf("key %d: block %d of %d, named before %t", i, ref.number(), n, seen[ref])
		}
		seen[ref] = true
		if got, ok := k.find(k.hash(3, name(i)), 3, name(i)); !ok || got != slot {
			t.Fatalf("key %d: found %t in slot %d, want %d", i, ok, got, slot)
		}
	}
	if k.live != len(slots) {
		t.Fatalf("%d keys live, want %d", k.live, len(slots))
	}
}
