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

// laterEntry returns [ErrLaterFormat], wrapped, of an entry whose format or kind this version doesn't know, or that raises
// the level above newest. The entry's checksum in the log was right, so it is what somebody wrote.
func laterEntry(e []byte, newest uint64) error {
	if len(e) < 2 {
		return nil
	}
	ours := fsm.Tick(fsm.Header{}) // what this version writes: format and kind come first
	switch {
	case e[0] > ours[0]:
		return fmt.Errorf("log entries of format %d, and this version reads %d: %w", e[0], ours[0], ErrLaterFormat)
	case e[0] == ours[0] && fsm.Kind(e[1]) > fsm.KindLevel:
		return fmt.Errorf("log entries of kind %d, and this version knows %d: %w", e[1], fsm.KindLevel, ErrLaterFormat)
	}
	if level, _ := fsm.LevelOf(e); level > newest {
		return fmt.Errorf("log entries of level %d, and this version has level %d: %w", level, newest, ErrLaterFormat)
	}
	return nil
}

// odd tells whether it may be an entry that [laterEntry] refuses. What isn't ours may begin with any bytes, and what is
// damaged too: both are for whoever reads it in full.
func (r rawEntry) odd(newest uint64) bool {
	if !r.decodable() {
		return false
	}
	for rest := r[1:]; len(rest) > 0; {
		name, behind, _ := rest.value()
		value, next, _ := behind.value()
		if string(name) == "Data" {
			return laterEntry(value, newest) != nil
		}
		rest = next
	}
	return false
}

// laterInLog reads those entries of a log that looked odd. Those that can't be read are for others to judge.
func laterInLog(log *logStore, odd []uint64, newest uint64) error {
	for _, index := range odd {
		var l raft.Log
		if err := log.get(index, &l); err != nil || l.Type != raft.LogCommand {
			continue
		}
		if err := laterEntry(l.Data, newest); err != nil {
			return fmt.Errorf("entry %d: %w", index, err)
		}
	}
	return nil
}

// laterInSnapshots looks at how each finished snapshot begins: eight bytes, of which the last is the format's number, and
// then the level, where it isn't the first.
func laterInSnapshots(folder string, newest uint64) error {
	states, err := filepath.Glob(filepath.Join(folder, snapshotsName, "*-*-*", "state.bin"))
	if err != nil {
		return err
	}
	for _, path := range states {
		switch format, level, err := headOf(path); {
		case err != nil: // for others to judge
		case format > fsm.SnapshotHead[snapshotFormat]:
			return fmt.Errorf("%s: snapshots of format %d, and this version reads %d: %w", path, format, fsm.SnapshotHead[snapshotFormat], ErrLaterFormat)
		case level > newest:
			return fmt.Errorf("%s: snapshots of level %d, and this version has level %d: %w", path, level, newest, ErrLaterFormat)
		}
	}
	return nil
}

// snapshotFormat is where a snapshot has the number of its format.
const snapshotFormat = len(fsm.SnapshotHead) - 1

// headOf reads the format of a snapshot, and where that is none of later versions the level; 0 of what isn't ours.
func headOf(path string) (format byte, level uint64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	var head [len(fsm.SnapshotHead)]byte
	if _, err := io.ReadFull(f, head[:]); err != nil || string(head[:snapshotFormat]) != fsm.SnapshotHead[:snapshotFormat] {
		return 0, 0, err
	}
	if format = head[snapshotFormat]; format > fsm.SnapshotHead[snapshotFormat] {
		return format, 0, nil
	}
	level, err = fsm.SnapshotLevel(io.MultiReader(bytes.NewReader(head[:]), f))
	return format, level, err
}
