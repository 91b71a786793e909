package partition

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/fsm"
)

// ErrLaterFormat says that a replica's folder holds what a later version of the software wrote. It is whole, and this
// version must not touch it: neither go on from it nor take it for damage.
var ErrLaterFormat = errors.New("a later version of the software wrote it")

// laterEntry returns [ErrLaterFormat], wrapped, of an entry whose format or kind this version doesn't know. The entry's
// checksum in the log was right, so it is what somebody wrote.
func laterEntry(e []byte) error {
	if len(e) < 2 {
		return nil
	}
	ours := fsm.Tick(fsm.Header{}) // what this version writes: format and kind come first
	switch {
	case e[0] > ours[0]:
		return fmt.Errorf("log entries of format %d, and this version reads %d: %w", e[0], ours[0], ErrLaterFormat)
	case e[0] == ours[0] && fsm.Kind(e[1]) > fsm.KindBatch:
		return fmt.Errorf("log entries of kind %d, and this version knows %d: %w", e[1], fsm.KindBatch, ErrLaterFormat)
	}
	return nil
}

// odd tells whether it may be an entry that [laterEntry] refuses. What isn't ours may begin with any bytes, and what is
// damaged too: both are for whoever reads it in full.
func (r rawEntry) odd() bool {
	if !r.decodable() {
		return false
	}
	for rest := r[1:]; len(rest) > 0; {
		name, behind, _ := rest.value()
		value, next, _ := behind.value()
		if string(name) == "Data" {
			return laterEntry(value) != nil
		}
		rest = next
	}
	return false
}

// laterInLog reads those entries of a log that looked odd. Those that can't be read are for others to judge.
func laterInLog(log *logStore, odd []uint64) error {
	for _, index := range odd {
		var l raft.Log
		if err := log.get(index, &l); err != nil || l.Type != raft.LogCommand {
			continue
		}
		if err := laterEntry(l.Data); err != nil {
			return fmt.Errorf("entry %d: %w", index, err)
		}
	}
	return nil
}

// laterInSnapshots looks at how each finished snapshot begins: eight bytes, of which the last is the format's number.
func laterInSnapshots(folder string) error {
	states, err := filepath.Glob(filepath.Join(folder, snapshotsName, "*-*-*", "state.bin"))
	if err != nil {
		return err
	}
	var ours bytes.Buffer
	if _, err := fsm.New().Snapshot().WriteTo(&ours); err != nil {
		return err
	}
	want := ours.Bytes()[:snapshotHead]
	for _, path := range states {
		head, err := headOf(path)
		const number = snapshotHead - 1
		if err == nil && bytes.Equal(head[:number], want[:number]) && head[number] > want[number] {
			return fmt.Errorf("%s: snapshots of format %d, and this version reads %d: %w", path, head[number], want[number], ErrLaterFormat)
		}
	}
	return nil
}

const snapshotHead = 8

func headOf(path string) (head [snapshotHead]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return head, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	_, err = io.ReadFull(f, head[:])
	return head, err
}
