package fsm

import (
	"encoding/binary"

	"github.com/quorate/quorate/internal/limit"
)

// A key's block in the arena: what it is, what it has used.
//
//	0  quota u24   3 states u8   4 key length u16
//	6  idle i64, only if there are states: when the last of them can be forgotten
//	   states, 24 bytes each, one per limit that isn't a rolling window
//	   key values
//	   rolling log to the end, only if the quota's policy has a rolling window
type block []byte

const (
	blockHead  = 6
	stateBytes = 24
	idleBytes  = 8
)

// blockSize returns the bytes of a block with an empty log of logBytes.
func blockSize(states, keyLen, logBytes int) int {
	size := blockHead + states*stateBytes + keyLen + logBytes
	if states > 0 {
		size += idleBytes
	}
	return size
}

func (b block) init(quota uint32, states int, key []byte) {
	clear(b[:blockHead+len(b.statesRegion(states))])
	binary.LittleEndian.PutUint32(b, quota|uint32(states)<<24)
	binary.LittleEndian.PutUint16(b[4:], uint16(len(key)))
	copy(b[b.keyAt():], key)
}

func (b block) quota() uint32 { return binary.LittleEndian.Uint32(b) & (1<<24 - 1) }
func (b block) states() int   { return int(b[3]) }
func (b block) keyLen() int   { return int(binary.LittleEndian.Uint16(b[4:])) }
func (b block) keyAt() int    { return blockHead + len(b.statesRegion(b.states())) }
func (b block) logAt() int    { return b.keyAt() + b.keyLen() }
func (b block) key() []byte   { return b[b.keyAt():b.logAt()] }

func (b block) statesRegion(states int) []byte {
	if states == 0 {
		return nil
	}
	return b[blockHead : blockHead+idleBytes+states*stateBytes]
}

func (b block) idle() int64 {
	if b.states() == 0 {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(b[blockHead:]))
}

func (b block) setIdle(at int64) { binary.LittleEndian.PutUint64(b[blockHead:], uint64(at)) }

func (b block) stateAt(i int) []byte {
	from := blockHead + idleBytes + i*stateBytes
	return b[from : from+stateBytes]
}

func (b block) state(i int) limit.State { return limit.GetState(b.stateAt(i)) }

func (b block) log() limit.Log { return limit.OpenLog(b[b.logAt():]) }

func leWord(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
