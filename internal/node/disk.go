package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/partition"
)

// disk is a node's folder, held by this process.
type disk struct {
	folder   string
	lock     *os.File
	identity Identity
	genesis  *Genesis // nil: none yet
	founded  bool     // its groups have their founding entries, or had
	lost     string   // why it never takes part again; empty: it may
	notes    *notes
}

// openDisk takes a node's folder, and makes it if it isn't there. It returns [partition.ErrLocked] where another
// process has it.
func openDisk(folder, name string) (d *disk, err error) {
	if err := partition.MakeFolders(folder); err != nil {
		return nil, fmt.Errorf("create the node's folder: %w", err)
	}
	d = &disk{folder: folder}
	if d.lock, err = lockFolder(folder); err != nil {
		return nil, err
	}
	if err := d.read(name); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *disk) read(name string) (err error) {
	if err := sweep(d.folder); err != nil {
		return err
	}
	if d.identity, err = openIdentity(d.folder, name); err != nil {
		return err
	}
	if d.genesis, err = readGenesis(d.folder); err != nil {
		return err
	}
	if d.notes, err = readNotes(d.folder); err != nil {
		return err
	}
	if d.lost, err = readLost(d.folder); err != nil {
		return err
	}
	_, err = os.Lstat(filepath.Join(d.folder, foundedFile))
	d.founded = err == nil
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case d.genesis == nil && (d.founded || d.anyGroup()):
		return fmt.Errorf("%s: %w", d.folder, ErrGenesisLost)
	}
	return nil
}

// ErrGenesisLost says that a disk holds entries, or held some, but no genesis document.
var ErrGenesisLost = errors.New("disk holds a node's data but no genesis document")

// anyGroup reports whether there is a folder of any replica.
func (d *disk) anyGroup() bool {
	found, _ := filepath.Glob(filepath.Join(d.folder, "p[0-9]*")) // the pattern is well formed
	return len(found) > 0
}

// group is the folder of the node's replica of a partition.
func (d *disk) group(p int) string { return filepath.Join(d.folder, "p"+strconv.Itoa(p)) }

// write puts the genesis document on the disk.
func (d *disk) write(g Genesis) error {
	if !g.names(d.identity.ServerID()) {
		return fmt.Errorf("%w: this is %s", ErrForeignDisk, d.identity.ServerID())
	}
	if err := writeGenesis(d.folder, g); err != nil {
		return fmt.Errorf("write the genesis document of node %s: %w", d.identity.Name, err)
	}
	d.genesis = &g
	return nil
}

// markFounded notes that all groups have their founding entries. From then on one without it has lost its log,
// and nothing is founded there again.
func (d *disk) markFounded() error {
	if err := writeOnce(d.folder, foundedFile, struct{}{}); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	d.founded = true
	return nil
}

// verdict is what is written of a disk that is lost.
type verdict struct {
	Why string `json:"why"`
}

func readLost(folder string) (why string, err error) {
	var v verdict
	err = readDocument(filepath.Join(folder, lostFile), &v)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err == nil && v.Why == "" {
		v.Why = "nobody wrote why"
	}
	return v.Why, err
}

// markLost notes that the disk never takes part again.
func (d *disk) markLost(why string) error {
	if err := writeOnce(d.folder, lostFile, verdict{why}); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// close lets go of the folder.
func (d *disk) close() error { return d.lock.Close() }

// lockPatience is how long another process may still take to let go of a folder.
const lockPatience = 2 * time.Second

func lockFolder(folder string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(folder, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(lockPatience); ; time.Sleep(50 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil, errors.Join(fmt.Errorf("lock %s: %w", folder, err), f.Close())
		case time.Now().After(end):
			return nil, errors.Join(fmt.Errorf("%s: %w", folder, partition.ErrLocked), f.Close())
		}
	}
}
