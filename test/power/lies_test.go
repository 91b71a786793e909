package power_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/test/power/medium"
)

// past is everything that a replica ever held.
type past struct {
	entries map[uint64][]raft.Log // by index
	values  map[string][]string   // by key
}

func pastOf(steps []*step) past {
	p := past{map[uint64][]raft.Log{}, map[string][]string{}}
	for _, s := range steps {
		for _, l := range s.logs {
			p.entries[l.Index] = append(p.entries[l.Index], l)
		}
		if s.kind == "set" {
			p.values[s.key] = append(p.values[s.key], s.after().stable[s.key])
		}
	}
	return p
}

// verdict says what became of a replica on a disk that lied.
type verdict string

const (
	unharmed verdict = "nothing is missing"
	spare    verdict = "missing is what isn't needed: a snapshot of what the log still holds"
	refused  verdict = "refused by the replica itself"
	behind   verdict = "shown by its start number or newest entry to peers that had heard of them"
	unseen   verdict = "an entry or a vote is missing, and nothing shows it"
)

// examine starts a replica from what a disk that lied has kept. It errs where the replica shows what it never held: no
// disk that only forgets may bring it to that.
func examine(l loss, p past) (verdict, error) {
	r := &replica{folder: l.folder}
	if err := partition.MakeFolders(l.folder); err != nil {
		return "", err
	}
	if r.open() != nil {
		return refused, nil
	}
	defer func() { _ = r.stores.Close() }()
	_, wrong := r.match(l.may)
	err := r.never(p)
	switch {
	case r.fatal != nil: // the first error is the last
		return refused, nil
	case err != nil:
		return "", err
	case wrong == nil:
		return unharmed, nil
	}
	for _, s := range l.may {
		if r.keeps(s) {
			return spare, nil
		}
	}
	if seen, err := r.stores.Seen(); err != nil || seen.Behind(l.may[0].seen()) {
		return behind, nil
	}
	return unseen, nil
}

// keeps tells whether all entries of a state are there, or in the snapshot that is, and its votes and starts.
func (r *replica) keeps(s *state) bool {
	if r.compareStable(s) != nil {
		return false
	}
	list, err := r.stores.Snapshots.List()
	if err != nil {
		return false
	}
	upTo := uint64(0)
	if len(list) > 0 {
		upTo = list[0].Index
	}
	if first, err := r.stores.Log.FirstIndex(); err != nil || first > upTo+1 {
		return false
	}
	for i := range s.entries {
		var l raft.Log
		want := &s.entries[i]
		if want.Index > upTo && (r.stores.Log.GetLog(want.Index, &l) != nil || l.Term != want.Term || !bytes.Equal(l.Data, want.Data)) {
			return false
		}
	}
	_, newest := s.newest()
	last, err := r.stores.Log.LastIndex()
	return err == nil && max(last, upTo) == newest
}

// never reads all that is there and errs where it is nothing that was ever stored. A hole in the log shows as an
// error of the stores' own.
func (r *replica) never(p past) error {
	first, err := r.stores.Log.FirstIndex()
	last, lerr := r.stores.Log.LastIndex()
	if err = errors.Join(err, lerr); err != nil || last == 0 {
		return err
	}
	for index := first; index <= last; index++ {
		var l raft.Log
		if err := r.stores.Log.GetLog(index, &l); err != nil {
			return fmt.Errorf("entry %d of %d to %d: %w", index, first, last, err)
		}
		if !p.held(&l) {
			return fmt.Errorf("entry %d was never stored", index)
		}
	}
	for key, values := range p.values {
		value, err := r.stores.Stable.Get([]byte(key))
		if err == nil && !strings.Contains(strings.Join(values, " "), string(value)) {
			return fmt.Errorf("%s never was %x", key, value)
		}
	}
	return nil
}

func (p past) held(l *raft.Log) bool {
	for _, was := range p.entries[l.Index] {
		if was.Term == l.Term && bytes.Equal(was.Data, l.Data) {
			return true
		}
	}
	return false
}

// onLog tells whether a sync is of a replica's log file.
func onLog(s medium.Sync) bool { return strings.HasPrefix(filepath.Base(s.File), "raft.db") }

// onMeta tells whether it is the second of a commit, which makes bbolt's meta page durable.
func onMeta(s medium.Sync) bool { return onLog(s) && (s.Pages[0] || s.Pages[1]) }

// onFolder tells whether it is of a folder: those that are synced here have no dot in their names, or end so.
func onFolder(s medium.Sync) bool { return s.Pages == nil }

// cutsOfLie is how often power is lost for each seed of a lie; four times that where few losses do harm.
const cutsOfLie = 10

// rarest is the lie that does harm only between two syncs of one commit.
const rarest = "the first half of a commit"

// TestEachSyncOfTheStoresIsNeeded: with any one kind of sync left out, the very losses of power that the stores
// survive do harm, within ten seeds. What a disk that lies forgets is not always noticed; but whatever the replica
// shows then, it once held.
func TestEachSyncOfTheStoresIsNeeded(t *testing.T) {
	needStrace(t)
	var recordings []*recording
	for seed := uint64(1); seed <= 10; seed++ {
		recordings = append(recordings, recordStores(t, seed))
	}
	for name, lie := range map[string]lies{
		rarest:                        func(s medium.Sync) bool { return onLog(s) && !onMeta(s) },
		"the second half of a commit": onMeta,
		"commits, both halves":        onLog,
		"a snapshot's state":          func(s medium.Sync) bool { return filepath.Base(s.File) == "state.bin" },
		"a snapshot's description":    func(s medium.Sync) bool { return filepath.Base(s.File) == "meta.json" },
		"a snapshot's folder":         func(s medium.Sync) bool { return onFolder(s) && strings.HasSuffix(s.File, ".tmp") },
		"the folder of snapshots":     func(s medium.Sync) bool { return onFolder(s) && filepath.Base(s.File) == "snapshots" },
		"the replica's folder":        func(s medium.Sync) bool { return onFolder(s) && filepath.Base(s.File) == "replica" },
		"the folder of the replica":   func(s medium.Sync) bool { return onFolder(s) && s.File == "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			verdicts, tl, first := map[verdict]int{}, newTally(), uint64(0)
			cuts := numberOf(t, cutsVariable, cutsOfLie)
			if name == rarest {
				cuts = max(cuts, 4*cutsOfLie)
			}
			for _, r := range recordings {
				r.cuts(t, cuts, lie, tl, func(l loss) {
					v, err := examine(l, pastOf(r.steps[:l.step+1]))
					if err != nil {
						t.Errorf("%s: %v", l.where, err)
					}
					if verdicts[v]++; v != unharmed && v != spare && first == 0 {
						first = r.seed
					}
				})
			}
			if tl.did.Ignored == 0 || first == 0 {
				t.Errorf("without %d syncs no loss of power did harm: %v", tl.did.Ignored, verdicts)
			}
			t.Logf("without the sync of %s: %d syncs that did nothing, %d losses of power, harm since seed %d: %v", name, tl.did.Ignored, tl.cuts, first, verdicts)
		})
	}
}
