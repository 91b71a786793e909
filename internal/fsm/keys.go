package fsm

import (
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
)

// keys is the table of all quota keys that have used anything.
//
// A key has a slot for life: a row that points to its block, which moves when it
// grows. The index and the expiry queue name slots. Which slot a new key gets
// follows from the log alone (the last one freed, else the next), a snapshot
// keeps it, and so the queue's order is the same on every replica.
type keys struct {
	seed   keyspace.Seed
	slots  table[blockRef]
	free   uint32 // the first free slot + 1; free slots form a chain
	live   int
	blocks *arena
	byKey  index
	expiry expiry

	touched uint64 // of what was read ahead, so that reading it isn't left out
}

// freeClass marks a slot as free: what would be its block number is then the
// next free slot + 1.
const freeClass = 127

func newKeys(seed keyspace.Seed) *keys {
	k := &keys{seed: seed}
	k.blocks = newArena(k)
	k.byKey = newIndex(func(slot uint32) uint64 {
		return k.hashOf(k.block(slot))
	})
	k.byKey.touch = func(slots []uint32) {
		var refs [bucketSlots]blockRef
		k.touched += k.touchBlocks(slots, refs[:])
	}
	return k
}

// hash spreads keys over the index. The seed keeps outsiders from aiming values
// at one bucket; the quota's number only sets apart quotas with equal values.
func (k *keys) hash(quota uint32, key []byte) uint64 {
	return k.seed.Sum64(key) ^ uint64(quota)*sumKey
}

func (k *keys) hashOf(b block) uint64 { return k.hash(b.quota(), b.key()) }

func (k *keys) find(hash uint64, quota uint32, key []byte) (slot uint32, ok bool) {
	for p := k.byKey.probe(hash); ; {
		slot, ok = p.next()
		if !ok {
			return 0, false
		}
		if b := k.block(slot); b.quota() == quota && string(b.key()) == string(key) {
			return slot, true
		}
	}
}

func (k *keys) block(slot uint32) block   { return k.blocks.read(*k.slots.at(slot)) }
func (k *keys) mutable(slot uint32) block { return k.blocks.write(*k.slots.at(slot)) }

// create adds a key that isn't there, without events and with absent states. The
// caller files it in the expiry queue.
func (k *keys) create(hash uint64, quota uint32, states int, key []byte, rolling bool) uint32 {
	slot := k.takeSlot()
	k.put(slot, hash, quota, states, key, rolling)
	return slot
}

// place adds a key in the next slot, for a restore; it is filed later.
func (k *keys) place(hash uint64, quota uint32, states int, key []byte, rolling bool) block {
	k.live++
	return k.put(k.slots.push(0), hash, quota, states, key, rolling)
}

// freshLog is a new key's room for its log: for a first event, a byte, and one that
// comes within some minutes. Without the second most keys would move for it.
const freshLog = limit.LogHeader + 1 + 6

func (k *keys) put(slot uint32, hash uint64, quota uint32, states int, key []byte, rolling bool) block {
	logBytes := 0
	if rolling {
		logBytes = freshLog
	}
	ref := k.blocks.alloc(blockSize(states, len(key), logBytes))
	b := block(k.blocks.write(ref))
	b.init(quota, states, key)
	if rolling {
		limit.InitLog(b[b.logAt():])
	}
	*k.slots.mut(slot) = ref
	k.byKey.insert(hash, slot)
	return b
}

// logFor returns the log of a key for writing, in a region of at least size bytes.
func (k *keys) logFor(slot uint32, size int) limit.Log {
	b := k.mutable(slot)
	if size > len(b)-b.logAt() {
		b = k.move(slot, size)
	}
	return b.log()
}

func (k *keys) takeSlot() uint32 {
	k.live++
	if k.free == 0 {
		return k.slots.push(0)
	}
	slot := k.free - 1
	k.free = k.slots.at(slot).number()
	return slot
}

// fit moves a key to a smaller block if its log once needed a far larger one than it
// needs now: what the heap holds of a key stays near to what the key counts for.
func (k *keys) fit(slot uint32) {
	b := k.block(slot)
	if len(b) <= 2*keyBytes {
		return
	}
	if need := b.log().CompactSize(); len(b) > 2*(b.logAt()+need+keyBytes) {
		k.move(slot, need)
	}
}

// move moves a key's block to one of another size, whose log has room for logBytes,
// and drops what is dead in the log on the way.
func (k *keys) move(slot uint32, logBytes int) block {
	old := *k.slots.at(slot)
	b := block(k.blocks.read(old))
	head := b.logAt()
	ref := k.blocks.alloc(head + logBytes)
	fresh := block(k.blocks.write(ref))
	copy(fresh, b[:head])
	b.log().CopyTo(fresh[head:])
	// The slot first: every block that a release may move is found through its slot.
	*k.slots.mut(slot) = ref
	k.blocks.release(old)
	return fresh
}

// moved lets the key whose block has moved know. The block has no way back to its
// slot, which would cost every key four bytes; the index has.
func (k *keys) moved(from, to blockRef) {
	for p := k.byKey.probe(k.hashOf(k.blocks.read(to))); ; {
		slot, ok := p.next()
		if !ok {
			panic("fsm: moved a block that no key has")
		}
		if *k.slots.at(slot) == from {
			*k.slots.mut(slot) = to
			return
		}
	}
}

// removeFirst forgets the key whose turn it is in the expiry queue.
func (k *keys) removeFirst() {
	slot := k.expiry.first().slot
	b := k.block(slot)
	k.byKey.remove(k.hash(b.quota(), b.key()), slot)
	k.blocks.release(*k.slots.at(slot))
	k.expiry.pop()
	k.live--
	if k.live == 0 {
		k.slots.reset()
		k.free = 0
		return
	}
	*k.slots.mut(slot) = makeRef(freeClass, k.free)
	k.free = slot + 1
}
