package partition_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/partition"
)

// logged is a folder whose log holds a group's founding entry, and these.
func logged(t *testing.T, entries ...*raft.Log) (folder string) {
	t.Helper()
	folder = t.TempDir()
	s, err := partition.OpenStores(folder, partition.StoreOptions{
		Elapsed: func() int64 { return 0 }, TimeOf: fsm.TimeOf, Fatal: func(err error) { t.Error(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Bootstrap([]string{"a", "b", "c"}), s.Log.StoreLogs(entries), s.Close()); err != nil {
		t.Fatal(err)
	}
	return folder
}

func tick(index uint64) *raft.Log {
	return &raft.Log{Index: index, Term: 2, Type: raft.LogCommand, Data: fsm.Tick(fsm.Header{Time: int64(index), Term: 2, Seq: index})}
}

// TestALaterFormatIsFoundWhereverItIs in the log, and what Raft writes of its own isn't taken for it, whatever it begins with.
func TestALaterFormatIsFoundWhereverItIs(t *testing.T) {
	raftsOwn := tick(3)
	raftsOwn.Type, raftsOwn.Data = raft.LogBarrier, []byte{200, 200}
	if h, err := partition.Inspect(logged(t, tick(2), raftsOwn, tick(4))); err != nil || h.LastIndex != 4 {
		t.Errorf("%+v, %v", h, err)
	}
	for at := range 3 {
		for name, change := range map[string]func(e []byte){
			"format": func(e []byte) { e[0]++ }, "kind": func(e []byte) { e[1] = byte(fsm.KindLevel) + 1 },
		} {
			entries := []*raft.Log{tick(2), tick(3), tick(4)}
			change(entries[at].Data)
			folder := logged(t, entries...)
			before := fileBytes(t, folder)
			if _, err := partition.Inspect(folder); !errors.Is(err, partition.ErrLaterFormat) {
				t.Errorf("%s, entry %d: %v", name, at+2, err)
			}
			if !bytes.Equal(before, fileBytes(t, folder)) {
				t.Errorf("%s, entry %d: the file was changed", name, at+2)
			}
		}
	}
}

// TestALevelThatTheSoftwareLacksIsFound, and one that it has isn't taken for later.
func TestALevelThatTheSoftwareLacksIsFound(t *testing.T) {
	raise := tick(3)
	raise.Data = fsm.LevelEntry(fsm.Header{Time: 3, Term: 2, Seq: 3}, 2)
	folder := logged(t, tick(2), raise, tick(4))
	_, err := partition.Inspect(folder)
	if !errors.Is(err, partition.ErrLaterFormat) || !strings.Contains(err.Error(), "log entries of level 2, and this version has level 1") {
		t.Errorf("it says %v", err)
	}
	if h, err := partition.InspectUpTo(folder, 2); err != nil || h.LastIndex != 4 {
		t.Errorf("%+v, %v", h, err)
	}
}

func fileBytes(t *testing.T, folder string) (all []byte) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(folder, "raft.db"), 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		var b bytes.Buffer
		_, err := tx.WriteTo(&b)
		all = b.Bytes()
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestADamagedFormatIsNoLaterOne: a bit that has changed on disk, just there, is damage like any other.
func TestADamagedFormatIsNoLaterOne(t *testing.T) {
	entries := []*raft.Log{tick(2), tick(3), tick(4)}
	folder := logged(t, entries...)
	db, err := bbolt.Open(filepath.Join(folder, "raft.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		logs := tx.Bucket([]byte("logs"))
		key := []byte{0, 0, 0, 0, 0, 0, 0, 3}
		value := bytes.Clone(logs.Get(key))
		at := bytes.Index(value, entries[1].Data)
		if at < 0 {
			return errors.New("the entry isn't there")
		}
		value[at] ^= 0x40
		return logs.Put(key, value)
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := partition.Inspect(folder); errors.Is(err, partition.ErrLaterFormat) {
		t.Error(err)
	}
	s, err := partition.OpenStores(folder, partition.StoreOptions{
		Elapsed: func() int64 { return 0 }, TimeOf: fsm.TimeOf, Fatal: func(error) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Log.GetLog(3, &raft.Log{}); !errors.Is(err, partition.ErrDamaged) {
		t.Errorf("read: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
