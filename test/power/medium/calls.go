package medium

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/quorate/quorate/test/power/trace"
)

// path is an argument's path, which begins at the folder of the argument before it.
func pathOf(c *trace.Call, i int) string {
	if path.IsAbs(c.Args[i].Bytes) {
		return path.Clean(c.Args[i].Bytes)
	}
	return path.Join(c.Args[i-1].File, c.Args[i].Bytes)
}

func (m *Medium) open(c *trace.Call) error {
	name, flags := pathOf(c, 1), c.Args[2].Text
	if _, ok := m.inside(name); !ok {
		return nil
	}
	n, _ := m.find(name)
	switch {
	case n == nil && !strings.Contains(flags, "O_CREAT"):
		return fmt.Errorf("%s is opened and nobody made it", name)
	case n == nil:
		folder, base, err := m.parent(name)
		if err != nil {
			return err
		}
		m.Count.Names++
		folder.change(entry{name: base, node: &node{}})
	case strings.Contains(flags, "O_TRUNC") && !n.folder:
		n.add(&write{resize: true, done: true})
	}
	return nil
}

func (m *Medium) write(c *trace.Call) error {
	n, _ := m.find(c.FirstFile())
	if n == nil {
		return nil
	}
	w := &write{offset: n.size, bytes: c.Args[1].Bytes}
	if c.Name == "pwrite64" {
		offset, err := strconv.ParseInt(c.Args[3].Text, 10, 64)
		if err != nil {
			return fmt.Errorf("%s: offset %s", c.Name, c.Args[3].Text)
		}
		w.offset = offset
	}
	if c.Ended > 0 && int(c.Result) != len(w.bytes) {
		return fmt.Errorf("%s of %d bytes wrote %d", c.Name, len(w.bytes), c.Result)
	}
	m.Count.Writes++
	n.add(w)
	m.syncs[c] = sync{node: n, writes: []*write{w}}
	return nil
}

// inHand returns the write that a call has begun.
func (m *Medium) inHand(c *trace.Call) (*write, bool) {
	s, ok := m.syncs[c]
	if !ok || c.Name != "write" && c.Name != "pwrite64" {
		return nil, false
	}
	delete(m.syncs, c)
	return s.writes[0], true
}

func (m *Medium) resize(c *trace.Call) error {
	n, _ := m.find(c.FirstFile())
	if n == nil {
		return nil
	}
	size, err := strconv.ParseInt(c.Args[1].Text, 10, 64)
	if err != nil {
		return fmt.Errorf("%s: size %s", c.Name, c.Args[1].Text)
	}
	n.add(&write{resize: true, offset: size, done: true})
	return nil
}

func (n *node) add(w *write) {
	n.writes = append(n.writes, w)
	if w.resize {
		n.size = w.offset
	} else {
		n.size = max(n.size, w.offset+int64(len(w.bytes)))
	}
}

// rename does what changes names: the calls of making, linking, renaming and removing.
func (m *Medium) rename(c *trace.Call) error {
	from := pathOf(c, 1)
	if _, ok := m.inside(from); !ok {
		return nil
	}
	folder, base, err := m.parent(from)
	if err != nil {
		return err
	}
	m.Count.Names++
	switch c.Name {
	case "mkdirat":
		folder.change(entry{name: base, node: newFolder()})
		return nil
	case "unlinkat":
		folder.change(entry{name: base})
		return nil
	}
	n := folder.names[base]
	to, name, err := m.parent(pathOf(c, 3))
	switch {
	case err != nil:
		return err
	case n == nil:
		return fmt.Errorf("%s is renamed and nobody made it", from)
	case c.Name == "linkat":
		to.change(entry{name: name, node: n})
	case to != folder:
		return fmt.Errorf("%s moves to another folder, which isn't followed", from)
	default:
		folder.change(entry{name: name, node: n, gone: base})
	}
	return nil
}
