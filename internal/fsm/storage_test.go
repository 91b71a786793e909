package fsm

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// TestIndexIsAMap plays random insertions and removals against a map, with hashes that
// spread, that crowd into a few buckets, and that are all equal.
func TestIndexIsAMap(t *testing.T) {
	for _, c := range []struct {
		name   string
		rows   uint32 // what is equal or nearly so shares one bucket, so there are few
		hashOf func(row uint32) uint64
	}{
		{"spread", 30_000, func(row uint32) uint64 { return mix(uint64(row), 7) }},
		{"few tags", 30_000, func(row uint32) uint64 { return mix(uint64(row), 7)&^0xff | uint64(row%3) }},
		{"one bucket", 800, func(row uint32) uint64 { return uint64(row%997) << 8 }},
		{"equal", 800, func(uint32) uint64 { return 42 }},
		{"all ones", 800, func(row uint32) uint64 { return ^uint64(0) - uint64(row%2)<<60 }},
	} {
		t.Run(c.name, func(t *testing.T) { playIndex(t, c.rows, c.hashOf) })
	}
}

func playIndex(t *testing.T, most uint32, hashOf func(row uint32) uint64) {
	rng := rand.New(rand.NewPCG(1, 2))
	ix, rows := newIndex(hashOf), map[uint32]bool{}
	for range 60_000 {
		row := rng.Uint32N(most)
		if rows[row] {
			ix.remove(hashOf(row), row)
			delete(rows, row)
		} else {
			ix.insert(hashOf(row), row)
			rows[row] = true
		}
	}
	for row := range most {
		if holds(&ix, row) != rows[row] {
			t.Fatalf("row %d: in the index %t, in the map %t", row, !rows[row], rows[row])
		}
	}
	if ix.live != len(rows) {
		t.Errorf("%d rows live, want %d", ix.live, len(rows))
	}
	for row := range rows {
		ix.remove(hashOf(row), row)
	}
	if ix.live != 0 || len(ix.dir) != 1 {
		t.Errorf("empty, it keeps %d rows and %d buckets", ix.live, len(ix.dir))
	}
}

func holds(ix *index, row uint32) bool {
	p := ix.probe(ix.hashOf(row))
	for {
		got, ok := p.next()
		if !ok || got == row {
			return ok
		}
	}
}

// TestIndexGrowsOneBucketAtATime: no insertion moves more rows than one bucket has.
func TestIndexGrowsOneBucketAtATime(t *testing.T) {
	hashed := 0
	ix := newIndex(func(row uint32) uint64 { hashed++; return mix(uint64(row), 7) })
	for row := range uint32(100_000) {
		hashed = 0
		if ix.insert(mix(uint64(row), 7), row); hashed > bucketSlots {
			t.Fatalf("inserting row %d moved %d", row, hashed)
		}
	}
}

// TestBlocksWasteLittle: every size fits its class, the next smaller class is too small
// for it, and what is left over stays small.
func TestBlocksWasteLittle(t *testing.T) {
	for size := 1; size <= maxBlock; size += 1 + size/2000 {
		c := classOf(size)
		got, most := sizeOfClass(c), size+size/4+8
		if size <= 512 {
			most = size + size/8 + 8
		}
		if got < size || got > max(most, minBlock) || c > 0 && sizeOfClass(c-1) >= size {
			t.Fatalf("%d bytes go to class %d of %d bytes", size, c, got)
		}
	}
	for c := range numClasses {
		if classOf(sizeOfClass(c)) != c {
			t.Errorf("class %d holds %d bytes, which belong to class %d", c, sizeOfClass(c), classOf(sizeOfClass(c)))
		}
	}
	if sizeOfClass(numClasses-1) != maxBlock || numClasses > freeClass {
		t.Errorf("%d classes up to %d bytes", numClasses, sizeOfClass(numClasses-1))
	}
}

// TestArenaKeepsBlocksApart plays random allocations, writes and releases against plain
// slices, through times in which it fills and times in which it empties, with snapshots
// taken in between that must not change. After each step no class has many more holes
// than blocks.
func TestArenaKeepsBlocksApart(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	a := &blocks{}
	a.arena = newArena(a)
	type snapshot struct {
		*arena
		want []held
	}
	var frozen []snapshot
	for i := range 20_000 {
		allocs := 55 - i/2500%2*20 // of a hundred steps
		switch {
		case len(a.want) < 5 || rng.IntN(100) < allocs:
			a.take(t, 1+rng.IntN(1+rng.IntN(3000)), i)
		case rng.IntN(3) == 0:
			h := &a.want[rng.IntN(len(a.want))]
			h.content = scribble(a.write(h.ref), i)
		default:
			a.giveBack(rng.IntN(len(a.want)))
		}
		a.dense(t)
		if i%1000 == 500 {
			frozen = append(frozen, snapshot{a.freeze(), slices.Clone(a.want)})
		}
	}
	for _, s := range append(frozen, snapshot{a.arena, a.want}) {
		for _, h := range s.want {
			if !bytes.Equal(s.read(h.ref), h.content) {
				t.Fatalf("block %x isn't what was written", h.ref)
			}
		}
	}
	if a.moves == 0 {
		t.Error("no block ever moved")
	}
	for len(a.want) > 0 {
		a.giveBack(0)
	}
	for i, c := range a.classes {
		if c.live != 0 || c.segs != nil {
			t.Errorf("class %d keeps %d segments with nothing in them", i, len(c.segs))
		}
	}
}

// blocks is an arena and what should be in it.
type blocks struct {
	*arena
	want  []held
	moves int
}

type held struct {
	ref     blockRef
	content []byte
}

func (b *blocks) holder(ref blockRef) int {
	return slices.IndexFunc(b.want, func(h held) bool { return h.ref == ref })
}

func (b *blocks) moved(from, to blockRef) {
	b.want[b.holder(from)].ref = to
	b.moves++
}

func (*blocks) soon(int, uint32, uint32) {}

func (b *blocks) take(t *testing.T, size, seed int) {
	ref := b.alloc(size)
	if b.holder(ref) >= 0 {
		t.Fatalf("block %x is handed out twice", ref)
	}
	content := b.write(ref)
	if leWord(content)<<32 != 0 {
		t.Fatalf("block %x is handed out with the first word of something else", ref)
	}
	b.want = append(b.want, held{ref, scribble(content, seed)})
}

// giveBack releases a block, which from then on isn't the model's any more.
func (b *blocks) giveBack(i int) {
	ref := b.want[i].ref
	b.want = slices.Delete(b.want, i, i+1)
	b.release(ref)
}

// dense demands that no class has many more holes than blocks, or more segments than it
// fills, and that it finds all of its holes.
func (b *blocks) dense(t *testing.T) {
	t.Helper()
	for i, c := range b.classes {
		if c.live > 0 && c.n >= 2*c.live+c.per || len(c.segs) != int((c.n+c.per-1)/c.per) {
			t.Fatalf("class %d: %d blocks live in %d segments for %d", i, c.live, len(c.segs), c.n)
		}
		holes := uint32(0)
		for next := c.hole; next != 0; holes++ {
			if next > c.n || holes >= c.n {
				t.Fatalf("class %d: hole %d of %d blocks", i, next-1, c.n)
			}
			next = hole(b.read(makeRef(i, next-1))).next()
		}
		if holes != c.n-c.live {
			t.Fatalf("class %d: %d holes and %d blocks live, of %d", i, holes, c.live, c.n)
		}
	}
}

func scribble(b []byte, seed int) []byte {
	for i := range b {
		b[i] = byte(seed + i)
	}
	return slices.Clone(b)
}

// TestFrozenTableNeverChanges: what a frozen table holds stays, whatever is written,
// pushed or popped behind it.
func TestFrozenTableNeverChanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var tab table[uint32]
	var plain []uint32
	type frozen struct {
		table table[uint32]
		plain []uint32
	}
	var snapshots []frozen
	for i := range 40_000 {
		switch n := len(plain); {
		case n == 0 || rng.IntN(5) < 2:
			tab.push(uint32(i))
			plain = append(plain, uint32(i))
		case rng.IntN(3) == 0:
			tab.pop()
			plain = plain[:n-1]
		default:
			row := rng.IntN(n)
			*tab.mut(uint32(row)), plain[row] = uint32(i), uint32(i)
		}
		if i%3000 == 0 {
			snapshots = append(snapshots, frozen{tab.freeze(), slices.Clone(plain)})
		}
	}
	snapshots = append(snapshots, frozen{tab, plain})
	for i, s := range snapshots {
		if int(s.table.len()) != len(s.plain) {
			t.Fatalf("snapshot %d has %d rows, want %d", i, s.table.len(), len(s.plain))
		}
		for row, want := range s.plain {
			if got := *s.table.at(uint32(row)); got != want {
				t.Fatalf("snapshot %d, row %d: %d, want %d", i, row, got, want)
			}
		}
	}
}

// TestTableGivesMemoryBack: segments that hold no row any more are no longer reachable.
func TestTableGivesMemoryBack(t *testing.T) {
	var tab table[uint32]
	for i := range uint32(10 * segmentRows) {
		tab.push(i)
	}
	for range 9*segmentRows + 1 {
		tab.pop()
	}
	for i, s := range tab.segs[:10:10][len(tab.segs):] {
		if s.rows != nil {
			t.Errorf("segment %d is kept", len(tab.segs)+i)
		}
	}
	var q ring[uint32]
	for i := range uint32(10 * ringRows) {
		q.push(i)
	}
	all := q.segs
	for range 5 * ringRows {
		q.drop()
	}
	for i, rows := range all[:5] {
		if rows != nil {
			t.Errorf("segment %d of the ring is kept", i)
		}
	}
}

// TestRingIsAQueue plays pushes and drops against a slice, from a number where a restore
// may begin, with frozen copies in between.
func TestRingIsAQueue(t *testing.T) {
	for _, head := range []uint64{0, 5, ringRows - 1, ringRows, 1<<32 - 3} {
		rng := rand.New(rand.NewPCG(7, head))
		q, plain := ring[uint64]{head: head, tail: head}, []uint64{}
		var copies []ring[uint64]
		var want [][]uint64
		for i := range uint64(20_000) {
			if up := i/4000%2 == 0; len(plain) == 0 || rng.IntN(5) < 2 == !up {
				q.push(i)
				plain = append(plain, i)
			} else {
				q.drop()
				plain = plain[1:]
			}
			if i%999 == 0 {
				copies, want = append(copies, q.freeze()), append(want, slices.Clone(plain))
			}
		}
		for i, c := range append(copies, q) {
			rows := append(want, plain)[i]
			if c.len() != uint64(len(rows)) {
				t.Fatalf("from %d: %d rows, want %d", head, c.len(), len(rows))
			}
			for j, v := range rows {
				if got := *c.at(c.head + uint64(j)); got != v {
					t.Fatalf("from %d: row %d is %d, want %d", head, j, got, v)
				}
			}
		}
	}
}

// TestRecordsAreFoundByNumberBeyond32Bits: the index keeps 32 bits of a record's number.
func TestRecordsAreFoundByNumberBeyond32Bits(t *testing.T) {
	r := newRecords([16]byte{1}, func(uint32) int32 { return 0 })
	r.rows.head, r.rows.tail = 1<<32-700, 1<<32-700
	id := func(i int) ID { return ID{byte(i), byte(i >> 8), 9} }
	for i := range 3000 {
		key := id(i)
		r.add(record{id: id(i)}, r.hash(0, &key), int64(i/10))
		if i >= 1000 {
			r.drop(r.hashAt(r.rows.head))
		}
	}
	for i := range 3000 {
		key := id(i)
		n, ok := r.find(r.hash(0, &key), 0, &key)
		if ok != (i >= 2000) || ok && r.time(n) != int64(i/10) {
			t.Fatalf("record %d: found %t", i, ok)
		}
	}
	if at, ok := r.oldest(); !ok || at != 200 {
		t.Errorf("the oldest is of %d", at)
	}
}

// TestExpiryTakesTheEarliestFirst: by second, then by slot, as trying them all finds it.
func TestExpiryTakesTheEarliestFirst(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	var e expiry
	plain := map[uint32]due{}
	earliest := func() (least due) {
		least = due{second: 1 << 31}
		for _, d := range plain {
			if d.before(least) {
				least = d
			}
		}
		return least
	}
	for i := range uint32(1500) {
		d := due{second: rng.Uint32N(100), slot: i}
		e.push(d)
		plain[i] = d
	}
	for len(plain) > 0 {
		d := earliest()
		if e.first() != d || e.len() != len(plain) {
			t.Fatalf("first is %v of %d, want %v of %d", e.first(), e.len(), d, len(plain))
		}
		if rng.IntN(2) == 0 {
			d.second += rng.Uint32N(50)
			e.refile(d)
			plain[d.slot] = d
			continue
		}
		e.pop()
		delete(plain, d.slot)
	}
}

// TestTablesHoldNoPointers: with a million keys the collector has a few thousand
// segments to look at, and nothing in them.
func TestTablesHoldNoPointers(t *testing.T) {
	for name, element := range map[string]reflect.Type{
		"keys.slots":     elementOf(reflect.TypeFor[keys](), "slots", "segs", "rows"),
		"keys.expiry":    elementOf(reflect.TypeFor[keys](), "expiry", "heap", "segs", "rows"),
		"keys.blocks":    elementOf(reflect.TypeFor[arena](), "classes", "segs", "bytes"),
		"records.rows":   elementOf(reflect.TypeFor[records](), "rows", "segs", ""),
		"records.stamps": elementOf(reflect.TypeFor[records](), "stamps", "segs", ""),
		"index.dir":      elementOf(reflect.TypeFor[index](), "dir"),
	} {
		if hasPointers(element) {
			t.Errorf("a %v in %s holds a pointer", element, name)
		}
	}
	if size := reflect.TypeFor[record]().Size(); size != 36 {
		t.Errorf("a record has %d bytes, want 36", size)
	}
}

// elementOf follows fields, and slices, arrays and pointers at each of them, to what
// there is one of per row.
func elementOf(t reflect.Type, fields ...string) reflect.Type {
	for _, name := range fields {
		if name != "" {
			f, ok := t.FieldByName(name)
			if !ok {
				panic(t.String() + " has no field " + name)
			}
			t = f.Type
		}
		if k := t.Kind(); k == reflect.Slice || k == reflect.Array {
			t = t.Elem()
		}
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
	}
	return t
}

func hasPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return false
	case reflect.Array:
		return hasPointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if hasPointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	}
	return true
}
