package node_test

import (
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/partition"
)

// K8S-12, going back to this version after a later one has written: the node refuses to start, names the format, and
// changes nothing of any replica, nor takes its disk for lost. With the later version, here this one on what it wrote
// itself, it goes on.
func TestK8S12ADowngradeIsRefusedAndTouchesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		write func(tr *trio)
		says  string
	}{
		"a format of entries": {
			func(tr *trio) { tr.logs("n2", 1, func(entry []byte) { entry[0]++ }) }, "log entries of format 2, and this version reads 1",
		},
		"a kind of entries": {
			func(tr *trio) { tr.logs("n2", 1, func(entry []byte) { entry[1] = byte(fsm.KindLevel) + 1 }) }, "log entries of kind 8, and this version knows 7",
		},
		"a format of snapshots": {
			func(tr *trio) { tr.snapshots("n2", 1, func(state []byte) { state[7] += 2 }) }, "snapshots of format 4, and this version reads 3",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := newTrio(t)
			tr.beginsSmall()
			tr.ready().apply(threePerMinute())
			tr.want("u1", fourth...)
			tr.snapshotted("n2", 1)
			tr.stop("n2")
			saved, folder := filepath.Join(t.TempDir(), "n2"), filepath.Join(tr.dir, "n2")
			copyTree(t, folder, saved)
			tc.write(tr)
			before := contents(t, folder)

			if err := tr.tryStart(tr.config("n2")); err != nil {
				t.Fatal(err)
			}
			err := tr.ends("n2")
			for _, want := range []string{"open partition 1: ", tc.says, "a later version of the software wrote it; run that version or a newer one"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("it says %q, and not %q", err, want)
				}
			}
			tr.stop("n2")
			same(t, before, contents(t, folder))
			tr.want("u1", partition.Denied)

			tr.lost("n2") // the folder makes place for the one of before
			copyTree(t, saved, folder)
			tr.start("n2")
			tr.until("all nodes up", tr.whole)
			tr.want("u1", partition.Denied)
		})
	}
}

// ends waits until a node can't go on, and returns why.
func (tr *trio) ends(name string) (why error) {
	tr.t.Helper()
	tr.until(name+" to end", func() bool {
		select {
		case why = <-tr.node(name).Failed():
			return true
		default:
		}
		if state, detail := tr.node(name).State(); state != "starting" {
			tr.t.Fatalf("%s goes on: %s %s", name, state, detail)
		}
		return false
	})
	return why
}

// beginsSmall starts nodes that compact early.
func (tr *trio) beginsSmall() {
	tr.t.Helper()
	for _, name := range tr.names {
		cfg := tr.config(name)
		cfg.LogBytes = 16 << 10
		if err := tr.tryStart(cfg); err != nil {
			tr.t.Fatal(err)
		}
	}
}

// snapshotted has checks decided until a replica has taken a snapshot.
func (tr *trio) snapshotted(name string, p int) {
	tr.t.Helper()
	for i := 0; len(tr.finished(name, p)) == 0; i++ {
		tr.want(fmt.Sprint("some", i), partition.Allowed)
	}
}

// finished are the folders of a replica's snapshots.
func (tr *trio) finished(name string, p int) []string {
	tr.t.Helper()
	found, err := filepath.Glob(filepath.Join(tr.dir, name, fmt.Sprint("p", p), "snapshots", "*-*-*[0-9]"))
	if err != nil {
		tr.t.Fatal(err)
	}
	return found
}

// snapshots changes the newest snapshot as if it had been written so.
func (tr *trio) snapshots(name string, p int, change func(state []byte)) {
	tr.t.Helper()
	all := tr.finished(name, p)
	rewrite(tr.t, all[len(all)-1], true, change)
}

// logs adds an entry to a replica's log, which is the newest one but for the change.
func (tr *trio) logs(name string, p int, change func(entry []byte)) {
	tr.t.Helper()
	stores, err := partition.OpenStores(filepath.Join(tr.dir, name, fmt.Sprint("p", p)), partition.StoreOptions{
		Elapsed: func() int64 { return 0 }, TimeOf: fsm.TimeOf, Fatal: func(err error) { tr.t.Error(err) },
		SnapshotTime: func(s io.Reader) (int64, error) { return fsm.SnapshotTime(s) },
	})
	if err != nil {
		tr.t.Fatal(err)
	}
	last, err := stores.Log.LastIndex()
	if err == nil {
		err = appendCopy(last, stores.Log.GetLog, stores.Log.StoreLog, change)
	}
	if err != nil {
		tr.t.Fatal(err)
	}
	if err := stores.Close(); err != nil {
		tr.t.Fatal(err)
	}
}

// appendCopy appends a changed copy of the newest entry of ours, whose type in the library has no name here.
func appendCopy[L any](last uint64, get func(uint64, *L) error, store func(*L) error, change func([]byte)) error {
	for index := last; index > 0; index-- {
		var l L
		if err := get(index, &l); err != nil {
			return err
		}
		fields := reflect.ValueOf(&l).Elem()
		if data := fields.FieldByName("Data").Bytes(); fields.FieldByName("Type").Uint() == 0 {
			data = append([]byte(nil), data...)
			change(data)
			fields.FieldByName("Data").SetBytes(data)
			fields.FieldByName("Index").SetUint(last + 1)
			return store(&l)
		}
	}
	return fmt.Errorf("no entry of ours up to %d", last)
}
