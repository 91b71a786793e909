package sim

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/hashicorp/raft"
)

// kept is how many snapshots stay, as in the product's store.
const kept = 2

// shots are a disk's snapshots. One is written to a name that doesn't count, synced, renamed, and then its folder is
// synced: a death or a loss of power leaves it there whole, or not at all. Where syncs are ignored its name may be
// there without all of its bytes.
type shots struct {
	made     uint64
	finished []*shot // newest last
}

type shot struct {
	meta   raft.SnapshotMeta
	data   []byte
	synced bool
	torn   bool
}

func (c *shots) losePower(d *disk, s *stream) {
	c.finished = slices.DeleteFunc(c.finished, func(f *shot) bool {
		if f.synced {
			return false
		}
		switch s.below(3) {
		case 0:
			d.w.count("snapshots lost")
			return true
		case 1:
			if d.w.o.Breaks.IgnoreSync {
				d.w.count("snapshots torn")
				f.torn = true
			}
		}
		f.synced = true
		return false
	})
}

// newest is sorted as the library's file store sorts: by term and index.
func (c *shots) sorted() []*shot {
	list := slices.Clone(c.finished)
	slices.SortStableFunc(list, func(a, b *shot) int {
		switch {
		case a.meta.Term != b.meta.Term:
			return int(int64(b.meta.Term) - int64(a.meta.Term))
		default:
			return int(int64(b.meta.Index) - int64(a.meta.Index))
		}
	})
	return list
}

// shelf is a process's way to its machine's snapshots.
type shelf struct{ *handle }

var _ raft.SnapshotStore = shelf{}

// Create implements raft.SnapshotStore.
func (c shelf) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration, ci uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	when, s, err := c.meet("snapshot Create")
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.shots.made++
	id := fmt.Sprintf("%d-%d-%d", term, index, c.shots.made)
	c.mu.Unlock()
	if err := c.reach(when, when, s); err != nil {
		return nil, err
	}
	return &sink{shelf: c, shot: &shot{meta: raft.SnapshotMeta{
		Version: version, ID: id, Index: index, Term: term, Configuration: configuration, ConfigurationIndex: ci,
	}}}, nil
}

// List implements raft.SnapshotStore.
func (c shelf) List() (list []*raft.SnapshotMeta, err error) {
	err = c.read("snapshot List", func(*image) error {
		for _, f := range c.shots.sorted() {
			meta := f.meta
			list = append(list, &meta)
		}
		return nil
	})
	if len(list) > kept {
		list = list[:kept]
	}
	return list, err
}

// Open implements raft.SnapshotStore.
func (c shelf) Open(id string) (meta *raft.SnapshotMeta, r io.ReadCloser, err error) {
	err = c.read("snapshot Open", func(*image) error {
		all := c.shots.sorted()
		i := slices.IndexFunc(all, func(f *shot) bool { return f.meta.ID == id })
		switch {
		case i < 0:
			return fmt.Errorf("open snapshot %s: %w", id, fs.ErrNotExist)
		case all[i].torn:
			return fmt.Errorf("open snapshot %s: its checksum doesn't fit", id)
		}
		copied := all[i].meta
		meta, r = &copied, io.NopCloser(bytes.NewReader(c.served(all, i)))
		return nil
	})
	return meta, r, err
}

// served is what a snapshot reads as. A store that breaks has the one before stand in for it.
func (c shelf) served(all []*shot, i int) []byte {
	if c.w.o.Breaks.OldSnapshot && i+1 < len(all) {
		return all[i+1].data
	}
	return all[i].data
}

// sink is a snapshot that is being written.
type sink struct {
	shelf
	shot *shot
}

// ID implements raft.SnapshotSink.
func (k *sink) ID() string { return k.shot.meta.ID }

// Write implements raft.SnapshotSink.
func (k *sink) Write(b []byte) (int, error) {
	when, s, err := k.meet("snapshot Write")
	if err != nil {
		return 0, err
	}
	if err := k.reach(when, when, s); err != nil {
		return 0, err
	}
	k.shot.data = append(k.shot.data, b...)
	return len(b), nil
}

// Cancel implements raft.SnapshotSink.
func (k *sink) Cancel() error {
	_, _, err := k.meet("snapshot Cancel")
	k.w.count("snapshots cancelled")
	return err
}

// Close implements raft.SnapshotSink.
func (k *sink) Close() error {
	when, s, err := k.meet("snapshot Close")
	if err != nil {
		return err
	}
	if err := k.pause(s); err != nil { // its bytes and their sync
		return err
	}
	if err := k.reach(when, amid, s); err != nil {
		return err
	}
	k.rename()
	if err := k.reach(when, unsynced, s); err != nil {
		return err
	}
	if err := k.pause(s); err != nil { // its folder's sync
		return err
	}
	k.reap()
	k.w.count("snapshots finished")
	return k.reach(when, after, s)
}

// rename makes the snapshot one that counts.
func (k *sink) rename() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.p.died() {
		return
	}
	k.shot.meta.Size = int64(len(k.shot.data))
	k.shots.finished = append(k.shots.finished, k.shot)
}

// reap removes those that newer ones replace, once the names in the folder are synced.
func (k *sink) reap() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.p.died() {
		return
	}
	for _, f := range k.shots.finished {
		f.synced = f.synced || !k.w.o.Breaks.IgnoreSync
	}
	if all := k.shots.sorted(); len(all) > kept {
		k.shots.finished = slices.DeleteFunc(k.shots.finished, func(f *shot) bool { return slices.Contains(all[kept:], f) })
	}
}
