package keyspace

import "encoding/binary"

// Digest returns 64 bits that tell two checks apart that came under one decision id: of the domain, the
// cost that was asked for and the descriptors, whose order doesn't matter but whose number does: a
// descriptor given twice is charged twice.
//
// The descriptors go in as the sum of their own hashes. A sum needs no sorting, keeps repetitions, and is
// as safe as a hash of the sorted list against callers who can't see the hashes of a seed that they don't know.
func (s Seed) Digest(domain string, cost uint64, descriptors []Descriptor) uint64 {
	var sum uint64
	for _, d := range descriptors {
		sum += s.hashDescriptor(d)
	}
	h := s.newHash()
	h.writeByte(kindDigest)
	h.writePart(domain)
	var fixed [24]byte
	binary.LittleEndian.PutUint64(fixed[0:], cost)
	binary.LittleEndian.PutUint64(fixed[8:], uint64(len(descriptors)))
	binary.LittleEndian.PutUint64(fixed[16:], sum)
	write(&h, fixed[:])
	return h.sum()
}

func (s Seed) hashDescriptor(d Descriptor) uint64 {
	h := s.newHash()
	h.writeByte(kindDescriptor)
	for _, e := range d {
		h.writePart(e.Name)
		h.writePart(e.Value)
	}
	return h.sum()
}
