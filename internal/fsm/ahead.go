package fsm

// aheadChecks is how many checks are looked up ahead of being decided: many enough
// to keep the memory busy, few enough that what they touch stays in the cache.
const aheadChecks = 128

// ahead reads what the next checks of a batch will need before they are decided.
// Deciding one check is a chain of four or five reads from a table of a gigabyte, each
// of which waits for the one before; the same step of many checks doesn't wait. It
// changes nothing and decides nothing: what it finds only lies in the cache then.
type ahead struct {
	batch  batch // a second reader of the same bytes
	check  Check
	hashes [aheadChecks]uint64
	rows   [aheadChecks]uint32
	refs   [aheadChecks]blockRef
}

// look touches what the next checks will need and returns the hashes of the keys of
// their charges, in order.
func (a *ahead) look(m *Machine) []uint64 {
	n := 0
	for n+MaxCharges <= aheadChecks && a.batch.next(&a.check) {
		m.keys.touched += m.records.touch(a.check.Domain, &a.check.ID)
		for i := range a.check.Charges {
			ch := &a.check.Charges[i]
			a.hashes[n] = m.keys.hash(uint32(ch.Policy), ch.Key)
			n++
		}
	}
	m.keys.touched += m.keys.touch(a.hashes[:n], a.rows[:], a.refs[:])
	return a.hashes[:n]
}

// touch reads where the index would find the id, or put it.
func (r *records) touch(domain int32, id *ID) uint64 {
	h := r.hash(domain, id)
	return r.byID.bucketOf(h).group(homeGroup(h))
}

// touch reads the blocks that the hashes lead to, all of them a step at a time.
func (k *keys) touch(hashes []uint64, rows []uint32, refs []blockRef) (sum uint64) {
	for _, h := range hashes {
		sum += k.byKey.bucketOf(h).group(homeGroup(h))
	}
	n := 0
	for _, h := range hashes {
		p := k.byKey.probe(h)
		if row, ok := p.next(); ok {
			rows[n] = row
			n++
		}
	}
	return sum + k.touchBlocks(rows[:n], refs)
}

// touchBlocks reads the beginnings of the slots' blocks.
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
