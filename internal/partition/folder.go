package partition

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// A group's replica has a folder of its own:
//
//	raft.db      its log, term, vote and start number
//	snapshots/   its snapshots
const (
	logFile       = "raft.db"
	snapshotsName = "snapshots" // fixed by the library's file snapshot store
)

// MakeFolders creates a folder, and those above it that are missing, such that they survive a loss of
// power: a name that is only in memory takes all below it with it.
func MakeFolders(path string) error {
	path = filepath.Clean(path)
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := MakeFolders(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

// SyncFolder makes the names in a folder durable.
func SyncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
