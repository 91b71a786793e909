package partition_test

import (
	"testing"

	"github.com/quorate/quorate/internal/partition"
)

// Between a truncation and the entries that take its place the log is shorter than others have seen it. A process
// that dies there has lost nothing, and must not look like an old copy.
func TestATruncationIsNoRewind(t *testing.T) {
	b := newBench(t, nil)
	b.must(b.Stable.SetUint64([]byte("CurrentTerm"), 2))
	b.must(b.Log.StoreLogs(entries(1, 110, 2)))
	seen, err := b.BeginStart()
	b.must(err)
	b.must(b.Log.DeleteRange(105, 110))
	b.reopen()
	again, err := b.BeginStart()
	b.must(err)
	if again.Behind(seen) || again != (partition.Start{Number: 2, Term: 2, Index: 110}) {
		t.Errorf("seen as %+v, then as %+v", seen, again)
	}
	b.must(b.Close())
	holds, err := partition.Inspect(b.folder)
	if err != nil || holds.Start != again {
		t.Errorf("inspected as %+v, %v", holds.Start, err)
	}
	b.open()
	b.must(b.Log.StoreLogs(entries(105, 106, 3)))
	if now, err := b.Seen(); err != nil || now != (partition.Start{Number: 2, Term: 3, Index: 106}) {
		t.Errorf("with other entries in its place: %+v, %v", now, err)
	}
}
