package partition_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/quorate/quorate/internal/partition"
)

// Power was lost when the log file was being made: what is left of it is in nobody's way.
func TestALogFileIsMadeWholeOrNotAtAll(t *testing.T) {
	b := &bench{t: t, folder: t.TempDir()}
	half := filepath.Join(b.folder, "raft.db.tmp")
	write(t, half, string(make([]byte, 16<<10)))
	b.open()
	b.must(b.Log.StoreLog(entry(1, 1, 1)))
	b.reopen()
	b.holds("the entry", 1, 0)
	b.must(b.Close())
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}

// bbolt panics on a file like this one: its meta pages are sound, and all else is zeros.
func TestALogFileThatMakesNoSenseIsAnError(t *testing.T) {
	b := newBench(t, nil)
	b.must(b.Log.StoreLog(entry(1, 1, 1)))
	b.must(b.Close())
	f, err := os.OpenFile(filepath.Join(b.folder, "raft.db"), os.O_RDWR, 0)
	b.must(err)
	info, err := f.Stat()
	b.must(err)
	_, err = f.WriteAt(make([]byte, info.Size()-8192), 8192)
	b.must(errors.Join(err, f.Close()))
	if err := b.tryOpen(); !errors.Is(err, partition.ErrDamaged) {
		t.Errorf("got %v", err)
	}
}
