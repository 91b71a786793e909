package partition

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// openLogFile opens the file of the replica's log and votes. Where there is none it makes one under another name
// first: bbolt writes the first pages of a new file in one go, and what a loss of power left of them it could
// never open again.
func openLogFile(folder string) (*raftboltdb.BoltStore, error) {
	path := filepath.Join(folder, logFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := makeLogFile(path); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	if err := protect(func() error { return verifyPages(path) }); err != nil {
		return nil, err
	}
	return openBolt(path)
}

// makeLogFile puts an empty log file in place, whole or not at all.
func makeLogFile(path string) error {
	temporary := path + temporarySuffix
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a process that ended meanwhile
		return err
	}
	bolt, err := openBolt(temporary)
	if err != nil {
		return err
	}
	if err := bolt.Close(); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

// openBolt opens a file, or makes it. A file that makes no sense has bbolt panic.
func openBolt(path string) (bolt *raftboltdb.BoltStore, err error) {
	err = protect(func() (err error) {
		bolt, err = raftboltdb.New(raftboltdb.Options{
			Path: path,
			BoltOptions: &bbolt.Options{
				Timeout:        lockTimeout,
				NoFreelistSync: true, // the list of free pages is rebuilt at start instead of written with every entry
				FreelistType:   bbolt.FreelistMapType,
			},
		})
		return err
	})
	return bolt, err
}
