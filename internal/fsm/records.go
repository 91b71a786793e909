package fsm

import "github.com/quorate/quorate/internal/keyspace"

// recordBytes is what a decision record counts for in the memory bounds.
const recordBytes = 48

// record remembers one allow: 36 bytes, so the two words are split in halves to
// keep the compiler from padding them to 40.
type record struct {
	id            [16]byte
	digest        [2]uint32
	remaining     [2]uint32
	quotaAndLimit uint32
}

func halves(v uint64) [2]uint32 { return [2]uint32{uint32(v), uint32(v >> 32)} }
func whole(h [2]uint32) uint64  { return uint64(h[0]) | uint64(h[1])<<32 }
func (r *record) quota() uint32 { return r.quotaAndLimit >> 8 }
func (r *record) limit() int32  { return int32(r.quotaAndLimit & 0xff) }
func (r *record) sum(t int64) uint64 {
	return mix3(sumRecord, mix(leWord(r.id[:8]), leWord(r.id[8:])), mix(whole(r.digest), whole(r.remaining)), uint64(t)^uint64(r.quotaAndLimit)<<32)
}

// stamp says that the records from number first on were made at time.
type stamp struct {
	first uint64
	time  int64
}

// records is the queue of decision records, oldest first, with an index by id.
// The time of a record is kept once per entry, as all of an entry share it.
type records struct {
	rows   ring[record]
	stamps ring[stamp]
	byID   index
	seed   [2]uint64
	// domainOf names the domain of a quota: an id is unique within one domain.
	domainOf func(quota uint32) int32
}

func newRecords(seed keyspace.Seed, domainOf func(quota uint32) int32) *records {
	r := &records{seed: [2]uint64{leWord(seed[:8]), leWord(seed[8:])}, domainOf: domainOf}
	r.byID = newIndex(func(row uint32) uint64 { return r.hashAt(r.number(row)) })
	return r
}

// hash spreads ids over the index. They are random already; the seed keeps an
// authorised but hostile gateway from aiming them at one bucket.
func (r *records) hash(domain int32, id *ID) uint64 {
	return mix(mix(leWord(id[:8])^r.seed[0], leWord(id[8:])^r.seed[1]), uint64(domain))
}

func (r *records) hashAt(n uint64) uint64 {
	rec := r.rows.at(n)
	return r.hash(r.domainOf(rec.quota()), (*ID)(&rec.id))
}

// find returns the number of the record of (domain, id), of the given hash.
func (r *records) find(hash uint64, domain int32, id *ID) (uint64, bool) {
	for p := r.byID.probe(hash); ; {
		row, ok := p.next()
		if !ok {
			return 0, false
		}
		n := r.number(row)
		if rec := r.rows.at(n); rec.id == *id && r.domainOf(rec.quota()) == domain {
			return n, true
		}
	}
}

// number widens the 32 bits that the index keeps of a record's number.
func (r *records) number(row uint32) uint64 {
	return r.rows.head + uint64(row-uint32(r.rows.head))
}

// time returns when record n was made.
func (r *records) time(n uint64) int64 {
	low, high := r.stamps.head, r.stamps.tail
	for high-low > 1 {
		if mid := low + (high-low)/2; r.stamps.at(mid).first <= n {
			low = mid
		} else {
			high = mid
		}
	}
	return r.stamps.at(low).time
}

// add remembers a record whose id has the given hash.
func (r *records) add(rec record, hash uint64, now int64) {
	if r.stamps.len() == 0 || r.stamps.at(r.stamps.tail-1).time != now {
		r.stamps.push(stamp{first: r.rows.tail, time: now})
	}
	r.byID.insert(hash, uint32(r.rows.tail))
	r.rows.push(rec)
}

// oldest returns when the oldest record was made.
func (r *records) oldest() (int64, bool) {
	if r.rows.len() == 0 {
		return 0, false
	}
	return r.stamps.at(r.stamps.head).time, true
}

// drop forgets the oldest record, whose id has the given hash.
func (r *records) drop(hash uint64) {
	r.byID.remove(hash, uint32(r.rows.head))
	r.rows.drop()
	for r.stamps.len() > 1 && r.stamps.at(r.stamps.head+1).first <= r.rows.head {
		r.stamps.drop()
	}
	if r.rows.len() == 0 {
		r.stamps.drop()
	}
}
