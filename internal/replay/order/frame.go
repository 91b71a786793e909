package order

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// A run on disk is frames, one after another. A frame is the length of its rows together and a checksum,
// 4 bytes each, and then the rows; a row is its time (8 bytes), its length (4) and its payload. All
// numbers are little endian. The checksum (CRC-32C) covers the place of the frame in the file, the length
// and the rows, so a frame that is read from another place than it was written to is found out.
const (
	frameHead = 8
	rowHead   = 12
)

// The table that the package crc32 has in hardware.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendRowHead(dst []byte, time int64, length int) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(time))
	return binary.LittleEndian.AppendUint32(dst, uint32(length))
}

// sealFrame fills in the head of the frame that starts at off and consists of frame (head included) and
// tail.
func sealFrame(off int64, frame, tail []byte) {
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)-frameHead+len(tail)))
	binary.LittleEndian.PutUint32(frame[4:], frameSum(off, frame, tail))
}

func frameSum(off int64, frame, tail []byte) uint32 {
	var place [12]byte
	binary.LittleEndian.PutUint64(place[:], uint64(off))
	copy(place[8:], frame[:4])
	sum := crc32.Update(0, castagnoli, place[:])
	sum = crc32.Update(sum, castagnoli, frame[frameHead:])
	return crc32.Update(sum, castagnoli, tail)
}

// checkFrame says whether frame is what was written at off.
func checkFrame(off int64, frame []byte) error {
	if got, want := frameSum(off, frame, nil), binary.LittleEndian.Uint32(frame[4:]); got != want {
		return fmt.Errorf("%w: at byte %d the checksum is %08x, not %08x", ErrDamaged, off, got, want)
	}
	return nil
}

// cutRow takes the first row off the rows of a frame; ok is false where they are none.
func cutRow(rows []byte) (time int64, payload, rest []byte, ok bool) {
	if len(rows) < rowHead {
		return 0, nil, nil, false
	}
	time = int64(binary.LittleEndian.Uint64(rows))
	n := binary.LittleEndian.Uint32(rows[8:])
	rows = rows[rowHead:]
	if uint64(n) > uint64(len(rows)) {
		return 0, nil, nil, false
	}
	return time, rows[:n:n], rows[n:], true
}
