package medium

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// Loss says how much of what isn't durable a loss of power takes.
type Loss int

const (
	// Everything that isn't durable is lost.
	Everything Loss = iota
	// Nothing is lost, though it may be torn.
	Nothing
	// Some of it is lost: each page and each name for itself.
	Some
	// AllButOne page or name of each file and folder is lost.
	AllButOne
	// OnlyOne is.
	OnlyOne
	losses
)

// String names it.
func (l Loss) String() string {
	return [...]string{"everything", "nothing", "some", "all but one", "only one"}[l]
}

// AnyLoss draws one.
func AnyLoss(rng *rand.Rand) Loss { return Loss(rng.IntN(int(losses))) }

// Cut counts what a loss of power has left behind.
type Cut struct {
	PagesKept, PagesLost   int
	PagesTorn              []Page
	SizesLost              int
	NamesKept, NamesLost   int
	FilesTorn, FoldersTorn int // that hold part of what wasn't durable, and lack part
}

// Page is a page of a file.
type Page struct {
	File   string // its last name
	Number int64
}

// Add sums up.
func (c *Cut) Add(o Cut) {
	c.PagesKept += o.PagesKept
	c.PagesLost += o.PagesLost
	c.PagesTorn = append(c.PagesTorn, o.PagesTorn...)
	c.NamesKept += o.NamesKept
	c.NamesLost += o.NamesLost
	c.SizesLost += o.SizesLost
	c.FilesTorn += o.FilesTorn
	c.FoldersTorn += o.FoldersTorn
}

// Uncertain tells how many writes and names aren't durable now.
func (m *Medium) Uncertain() (writes, names int) {
	walk(m.top, func(n *node) {
		writes += len(n.writes)
		names += len(n.entries)
	})
	return writes, names
}

// walk visits all that a disk may hold, once.
func walk(top *node, visit func(*node)) {
	seen := map[*node]bool{}
	var into func(*node)
	into = func(n *node) {
		if n == nil || seen[n] {
			return
		}
		seen[n] = true
		visit(n)
		for _, below := range n.durable {
			into(below)
		}
		for _, e := range n.entries {
			into(e.node)
		}
	}
	into(top)
}

// Cut writes what a computer may find, if power is lost now, below a folder that isn't there.
func (m *Medium) Cut(rng *rand.Rand, loss Loss, folder string) (Cut, error) {
	c := cutter{rng: rng, loss: loss, files: map[*node]string{}}
	err := c.lay(m.top, folder)
	return c.count, err
}

// cutter decides, and writes what is left.
type cutter struct {
	rng   *rand.Rand
	loss  Loss
	count Cut
	files map[*node]string // written, for those that have several names
}

func (c *cutter) lay(n *node, at string) error {
	if was, ok := c.files[n]; ok {
		return os.Link(was, at)
	}
	c.files[n] = at
	if !n.folder {
		k := c.file(n, filepath.Base(at))
		return k.save(at)
	}
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	names := c.folder(n)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if err := c.lay(names[name], filepath.Join(at, name)); err != nil {
			return err
		}
	}
	return nil
}

// folder decides which changes of a folder's names are there.
func (c *cutter) folder(n *node) map[string]*node {
	names := maps.Clone(n.durable)
	kept := 0
	special := c.special(len(n.entries))
	for i, e := range n.entries {
		if c.keep(i == special) {
			e.apply(names)
			kept++
		}
	}
	c.count.NamesKept += kept
	c.count.NamesLost += len(n.entries) - kept
	if kept > 0 && kept < len(n.entries) {
		c.count.FoldersTorn++
	}
	return names
}

// special is the place of the one that differs from all others.
func (c *cutter) special(of int) int {
	if of == 0 {
		return 0
	}
	return c.rng.IntN(of)
}

func (c *cutter) keep(special bool) bool {
	switch c.loss {
	case Everything:
		return false
	case Nothing:
		return true
	case AllButOne:
		return special
	case OnlyOne:
		return !special
	}
	return c.rng.IntN(2) == 0
}

// save writes a file; a page of zeros isn't written.
func (k *content) save(at string) (err error) {
	f, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Truncate(k.size); err != nil {
		return err
	}
	for n, p := range k.pages {
		if p = p[:max(0, min(pageSize, k.size-n*pageSize))]; p == "" {
			continue
		}
		if _, err := f.WriteAt([]byte(p), n*pageSize); err != nil {
			return fmt.Errorf("page %d: %w", n, err)
		}
	}
	return nil
}
