package fsm

// aheadCharges is how many charges are looked up ahead of being decided: many enough
// to keep the memory busy, few enough that what they touch stays in the cache.
const aheadCharges = 128

// ahead reads what the next checks of a batch will need before they are decided.
// Deciding one check is a chain of four or five reads from tables of a gigabyte, each
// of which waits for the one before; the same step of many checks doesn't wait, so
// each step is a loop of its own. It changes nothing and decides nothing: what it
// finds only lies in the cache then.
type ahead struct {
	batch  batch // a second reader of the same bytes
	check  Check
	ids    [aheadCharges]uint64 // hashes of ids, and
	keys   [aheadCharges]uint64 // of keys
	rows   [aheadCharges]uint32
	blocks [aheadCharges]blockRef
}

// look touches what the next checks will need and returns the hashes of their ids, and
// of the keys of their charges, in order.
func (a *ahead) look(m *Machine) (ids, keys []uint64) {
	checks, charges := 0, 0
	for charges+MaxCharges <= aheadCharges && a.batch.next(&a.check) {
		a.ids[checks] = m.records.hash(nth(m.roster.within, a.check.Domain), &a.check.ID)
		checks++
		for i := range a.check.Charges {
			ch := &a.check.Charges[i]
			a.keys[charges] = m.keys.hash(nth(m.roster.numbers, ch.Policy), ch.Key)
			charges++
		}
	}
	ids, keys = a.ids[:checks], a.keys[:charges]
	sum := m.keys.byKey.touchGroups(keys) + m.records.byID.touchGroups(ids)
	rows := m.keys.byKey.likely(keys, a.rows[:0])
	m.keys.touched += sum + m.keys.touchBlocks(rows, a.blocks[:])
	return ids, keys
}

// nth is an entry of the list, or nothing: what is read ahead isn't verified yet.
func nth[T any](list []T, at int32) (v T) {
	if uint(at) < uint(len(list)) {
		v = list[at]
	}
	return v
}

// lookOldest touches where the index has the n oldest records, or as many as fit, and
// returns the hashes of their ids.
func (a *ahead) lookOldest(m *Machine, n int) []uint64 {
	n = min(n, int(m.records.rows.len()), aheadCharges)
	for i := range n {
		a.ids[i] = m.records.hashAt(m.records.rows.head + uint64(i))
	}
	m.keys.touched += m.records.byID.touchGroups(a.ids[:n])
	return a.ids[:n]
}

// touchGroups reads where the hashes' rows are, or would be put.
func (ix *index) touchGroups(hashes []uint64) (sum uint64) {
	for _, h := range hashes {
		b := ix.bucketOf(h)
		g := &b.groups[homeGroup(h)]
		sum += uint64(b.used) + uint64(g.tags[0]) + uint64(g.rows[7])
	}
	return sum
}

// likely appends the first candidate row of each hash that has one.
func (ix *index) likely(hashes []uint64, rows []uint32) []uint32 {
	for _, h := range hashes {
		p := ix.probe(h)
		if row, ok := p.next(); ok {
			rows = append(rows, row)
		}
	}
	return rows
}

// touchBlocks reads the beginnings of the slots' blocks; refs has room for them.
func (k *keys) touchBlocks(slots []uint32, refs []blockRef) (sum uint64) {
	for i, slot := range slots {
		refs[i] = *k.slots.at(slot)
	}
	for _, ref := range refs[:len(slots)] {
		b := k.blocks.read(ref)
		sum += uint64(b[0]) + uint64(b[min(len(b)-1, 63)])
	}
	return sum
}

// soon reads how the blocks of a class from number from to below to are found.
func (k *keys) soon(class int, from, to uint32) {
	var hashes [packAhead]uint64
	var slots [packAhead]uint32
	n := 0
	for i := from; i < to; i++ {
		if b := k.blocks.read(makeRef(class, i)); !hole(b).marked() {
			hashes[n] = k.hashOf(block(b))
			n++
		}
	}
	k.touched += k.byKey.touchGroups(hashes[:n])
	for _, slot := range k.byKey.likely(hashes[:n], slots[:0]) {
		k.touched += uint64(*k.slots.at(slot))
	}
}
