package medium

import (
	"fmt"
	"path"
	"strings"

	"github.com/quorate/quorate/test/power/trace"
)

// Medium is the disk below one folder.
type Medium struct {
	// Ignore, if not nil, says which syncs do nothing though they return.
	Ignore func(Sync) bool

	root  string
	top   *node
	syncs map[*trace.Call]sync
	Count Count
}

// Sync is one of a file or of a folder.
type Sync struct {
	File  string         // its name below the root
	Pages map[int64]bool // of a file, that it is to make durable
	Call  *trace.Call
}

// Count is what a program has done to it.
type Count struct {
	Writes, FileSyncs, FolderSyncs, Names, Ignored int
}

// Add sums up.
func (c *Count) Add(o Count) {
	c.Writes += o.Writes
	c.FileSyncs += o.FileSyncs
	c.FolderSyncs += o.FolderSyncs
	c.Names += o.Names
	c.Ignored += o.Ignored
}

// New returns the disk below a folder that is empty, and whose own name is durable.
func New(root string) *Medium {
	return &Medium{root: path.Clean(root), top: newFolder(), syncs: map[*trace.Call]sync{}}
}

// node is a file or a folder.
type node struct {
	folder bool
	// of a folder
	names   map[string]*node // as programs see it
	durable map[string]*node
	entries []entry // that aren't durable
	// of a file
	size    int64 // as programs see it
	content content
	writes  []*write // that aren't durable
}

func newFolder() *node {
	return &node{folder: true, names: map[string]*node{}, durable: map[string]*node{}}
}

// entry is one change of a folder's names: name is to mean node, nil: nothing; and gone no longer does.
type entry struct {
	name string
	node *node
	gone string // of a rename
}

func (e entry) apply(names map[string]*node) {
	if e.gone != "" && names[e.gone] == e.node {
		delete(names, e.gone)
	}
	if e.node == nil {
		delete(names, e.name)
	} else {
		names[e.name] = e.node
	}
}

// write is one change of a file: bytes at an offset, or a new size.
type write struct {
	offset int64
	bytes  string
	resize bool // to offset
	done   bool
}

// sync is what one covers: what was done when it began.
type sync struct {
	node   *node
	writes []*write
	names  int
}

// Begin takes in what a call may do from its beginning on.
func (m *Medium) Begin(c *trace.Call) error {
	if c.Failed != "" {
		return nil // nothing is known to fail half way but writes, and those end the product
	}
	switch c.Name {
	case "write", "pwrite64":
		return m.write(c)
	case "ftruncate":
		return m.resize(c)
	case "fsync", "fdatasync":
		m.beginSync(c)
	case "openat":
		return m.open(c)
	case "mkdirat", "renameat", "linkat", "unlinkat":
		return m.rename(c)
	case "read", "sync", "syncfs": // more than is asked for is never counted on
	default:
		return m.unknown(c)
	}
	return nil
}

// unknown refuses a call that isn't followed, where it may be about this disk.
func (m *Medium) unknown(c *trace.Call) error {
	for _, a := range c.Args {
		for _, name := range []string{a.File, a.Bytes} {
			if _, ours := m.inside(name); ours && name != "" {
				return fmt.Errorf("%s of %s isn't followed", c.Name, name)
			}
		}
	}
	return nil
}

// End takes in what a call has done when it returned.
func (m *Medium) End(c *trace.Call) {
	if w, ok := m.inHand(c); ok {
		w.done = true
	}
	s, ok := m.syncs[c]
	delete(m.syncs, c)
	if !ok || !c.Done() {
		return
	}
	if s.node.folder {
		m.Count.FolderSyncs++
		s.node.harden(s.names)
		return
	}
	m.Count.FileSyncs++
	s.node.settle(s.writes)
}

// harden makes the first changes of a folder durable.
func (n *node) harden(count int) {
	for _, e := range n.entries[:count] {
		e.apply(n.durable)
	}
	n.entries = n.entries[count:]
}

// settle makes writes to a file durable.
func (n *node) settle(writes []*write) {
	covered := map[*write]bool{}
	for _, w := range writes {
		covered[w] = true
	}
	var left []*write
	for _, w := range n.writes {
		if covered[w] {
			n.content.apply(w)
		} else {
			left = append(left, w)
		}
	}
	n.writes = left
}

func (m *Medium) beginSync(c *trace.Call) {
	n, below := m.find(c.FirstFile())
	if n == nil {
		return
	}
	s := sync{node: n, names: len(n.entries)}
	pages := map[int64]bool{}
	for _, w := range n.writes {
		if !w.done {
			continue
		}
		s.writes = append(s.writes, w)
		for p := w.offset / pageSize; p*pageSize < w.offset+int64(len(w.bytes)); p++ {
			pages[p] = true
		}
	}
	if n.folder {
		pages = nil
	}
	if m.Ignore != nil && m.Ignore(Sync{below, pages, c}) {
		m.Count.Ignored++
		return
	}
	m.syncs[c] = s
}

// inside returns the name of a path below the root.
func (m *Medium) inside(name string) (below string, ok bool) {
	if name == m.root {
		return "", true
	}
	below, ok = strings.CutPrefix(name, m.root+"/")
	return below, ok
}

// find returns what a path names now; nil where it isn't below the root or isn't there.
func (m *Medium) find(name string) (*node, string) {
	below, ok := m.inside(name)
	if !ok {
		return nil, ""
	}
	n := m.top
	for part := range strings.SplitSeq(below, "/") {
		if part == "" {
			continue
		}
		if n = n.names[part]; n == nil {
			return nil, below
		}
	}
	return n, below
}

// parent returns the folder of a path, and the name in it.
func (m *Medium) parent(name string) (*node, string, error) {
	n, _ := m.find(path.Dir(name))
	if n == nil || !n.folder {
		return nil, "", fmt.Errorf("no folder holds %s", name)
	}
	return n, path.Base(name), nil
}

func (n *node) change(e entry) {
	e.apply(n.names)
	n.entries = append(n.entries, e)
}
