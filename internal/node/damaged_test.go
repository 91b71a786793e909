package node_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/internal/partition"
)

// A bit of an entry that has changed on disk costs one replica: it says so and stays out, and the process of the
// node goes on, with its other replicas.
func TestADamagedEntryStaysOutAlone(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start()
	tr.ready().apply(threePerMinute())
	tr.want("u1", fourth...)
	tr.stop("n2")
	db, err := bbolt.Open(filepath.Join(tr.dir, "n2", "p1", "raft.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		key, value := tx.Bucket([]byte("logs")).Cursor().Last()
		changed := bytes.Clone(value)
		changed[len(changed)*3/4] ^= 1
		return tx.Bucket([]byte("logs")).Put(bytes.Clone(key), changed)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	tr.start("n2")
	tr.staysOut("n2")
	for _, p := range tr.node("n2").Status().GetPartitions() {
		for _, r := range p.GetReplicas() {
			if out := r.GetState() == "awaiting replacement"; r.GetNode() == "n2" && out != (r.GetPartition() == 1) {
				t.Errorf("partition %d: %s is %s", r.GetPartition(), r.GetNode(), r.GetState())
			}
			if r.GetNode() == "n2" && r.GetPartition() == 1 && !strings.Contains(r.GetDetail(), "damaged") {
				t.Errorf("it says %q", r.GetDetail())
			}
		}
	}
	tr.want("u1", partition.Denied)
	tr.want("u2", fourth...)
}
