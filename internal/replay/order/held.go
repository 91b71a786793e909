package order

import (
	"encoding/binary"
	"slices"
	"unsafe"
)

// entry is the index of one row: where in which block it lies.
type entry struct {
	time       int64
	block, off uint32
}

const entrySize = int(unsafe.Sizeof(entry{}))

// lengthSize is the length before each payload in a block.
const lengthSize = 4

// chunk is a part of the index: rows that were added one after another.
type chunk struct {
	entries []entry
	inOrder bool
}

// held are the rows in memory. Blocks and chunks are of one unit each, and used again after a reset; a
// row that is larger than a unit gets a block of its own.
type held struct {
	unit   int
	budget int64 // bytes for blocks and chunks
	used   int64 // bytes of those in use
	blocks [][]byte
	fill   int // the block that rows are put in, of one unit
	chunks []chunk
	// What was in use before.
	freeBlocks [][]byte
	freeChunks [][]entry
	spare      []entry // for sorting a chunk; not in the budget
}

func newHeld(unit int, budget int64) *held {
	return &held{unit: unit, budget: budget}
}

// fits says whether a row of n bytes stays within the budget.
func (h *held) fits(n int) bool {
	need := 0
	if !h.blockHas(n + lengthSize) {
		need += max(h.unit, n+lengthSize)
	}
	if !h.chunkHas() {
		need += h.unit
	}
	return h.used+int64(need) <= h.budget
}

func (h *held) blockHas(n int) bool {
	return len(h.blocks) > 0 && cap(h.blocks[h.fill])-len(h.blocks[h.fill]) >= n
}

func (h *held) chunkHas() bool {
	if len(h.chunks) == 0 {
		return false
	}
	c := &h.chunks[len(h.chunks)-1]
	return len(c.entries) < cap(c.entries)
}

func (h *held) add(time int64, payload []byte) {
	if !h.chunkHas() {
		h.chunks = append(h.chunks, chunk{entries: h.newChunk(), inOrder: true})
	}
	at := h.fill
	if n := lengthSize + len(payload); !h.blockHas(n) {
		at = len(h.blocks)
		h.blocks = append(h.blocks, h.newBlock(n))
		if n <= h.unit || at == 0 {
			h.fill = at // a larger one is full, and what the last one has left is still good
		}
	}
	block := h.blocks[at]
	off := len(block)
	block = binary.LittleEndian.AppendUint32(block, uint32(len(payload)))
	h.blocks[at] = append(block, payload...)
	c := &h.chunks[len(h.chunks)-1]
	if n := len(c.entries); n > 0 && time < c.entries[n-1].time {
		c.inOrder = false
	}
	c.entries = append(c.entries, entry{time, uint32(at), uint32(off)})
}

func (h *held) newBlock(n int) []byte {
	if n > h.unit {
		h.take(n)
		return make([]byte, 0, n)
	}
	h.used += int64(h.unit)
	if last := len(h.freeBlocks) - 1; last >= 0 {
		b := h.freeBlocks[last]
		h.freeBlocks = h.freeBlocks[:last]
		return b
	}
	h.take(0)
	return make([]byte, 0, h.unit)
}

func (h *held) newChunk() []entry {
	h.used += int64(h.unit)
	if last := len(h.freeChunks) - 1; last >= 0 {
		c := h.freeChunks[last]
		h.freeChunks = h.freeChunks[:last]
		return c
	}
	h.take(0)
	return make([]entry, 0, h.unit/entrySize)
}

// take uses n bytes more, and lets go of what is unused until all stays within the budget: the mix of
// blocks, chunks and large blocks may have been another before. What is in use fits by itself.
func (h *held) take(n int) {
	h.used += int64(n)
	for h.used+int64(h.unit*(len(h.freeBlocks)+len(h.freeChunks))) > h.budget {
		if last := len(h.freeBlocks) - 1; last >= len(h.freeChunks) {
			h.freeBlocks = slices.Delete(h.freeBlocks, last, last+1)
		} else {
			last = len(h.freeChunks) - 1
			h.freeChunks = slices.Delete(h.freeChunks, last, last+1)
		}
	}
}

// reset forgets the rows and keeps their memory for others.
func (h *held) reset() {
	for _, b := range h.blocks {
		if cap(b) == h.unit {
			h.freeBlocks = append(h.freeBlocks, b[:0])
		}
	}
	for _, c := range h.chunks {
		h.freeChunks = append(h.freeChunks, c.entries[:0])
	}
	clear(h.blocks)
	clear(h.chunks)
	h.blocks, h.chunks, h.fill, h.used = h.blocks[:0], h.chunks[:0], 0, 0
}

// lend ends the time of rows: what they leave is for buffers from now on.
func (h *held) lend() {
	h.freeChunks, h.spare = nil, nil
}

// buffer gives n bytes, at least a unit, of a block that is free if that is enough. Larger ones, which are rare, take the
// place of all free blocks.
func (h *held) buffer(n int) []byte {
	last := len(h.freeBlocks) - 1
	if last < 0 || n > h.unit {
		h.freeBlocks = nil
		return make([]byte, n)
	}
	b := h.freeBlocks[last]
	h.freeBlocks = h.freeBlocks[:last]
	return b[:n]
}

func (h *held) giveBack(buffer []byte) {
	if cap(buffer) == h.unit {
		h.freeBlocks = append(h.freeBlocks, buffer[:0])
	}
}

// release gives the memory back.
func (h *held) release() {
	*h = held{unit: h.unit, budget: h.budget}
}

// sources sorts each chunk and gives what is to be merged.
func (h *held) sources() []source {
	spans := make([]span, len(h.chunks))
	for i, c := range h.chunks {
		if !c.inOrder {
			h.spare = slices.Grow(h.spare[:0], cap(c.entries))
			sortEntries(c.entries, h.spare[:len(c.entries)])
		}
		n := len(c.entries)
		spans[i] = span{first: c.entries[0].time, last: c.entries[n-1].time, seq: i}
	}
	var sources []source
	for _, chain := range chains(spans) {
		sources = append(sources, &heldSource{h: h, chain: chain})
	}
	return sources
}

// heldSource gives the rows of chunks that follow each other.
type heldSource struct {
	h     *held
	chain []span // the chunks left, by their seq
	i     int    // in the first of them
}

func (s *heldSource) next() (row, bool, error) {
	for len(s.chain) > 0 {
		seq := s.chain[0].seq
		if seq >= len(s.h.chunks) {
			return row{}, false, ErrClosed // released from within yield
		}
		if entries := s.h.chunks[seq].entries; s.i < len(entries) {
			e := entries[s.i]
			s.i++
			return row{e.time, seq, s.h.payload(e)}, true, nil
		}
		s.chain, s.i = s.chain[1:], 0
	}
	return row{}, false, nil
}

func (h *held) payload(e entry) []byte {
	from := h.blocks[e.block][e.off:]
	n := lengthSize + int(binary.LittleEndian.Uint32(from))
	return from[lengthSize:n:n]
}
