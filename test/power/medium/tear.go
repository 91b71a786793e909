package medium

import (
	"maps"
	"slices"
)

// sectorSize is what most disks write whole.
const sectorSize = 512

// file decides what a file holds.
func (c *cutter) file(n *node, name string) content {
	k := n.content.clone()
	if len(n.writes) == 0 {
		return k
	}
	sizes, versions := n.versions()
	sizeKept := c.rng.IntN(len(sizes))
	switch c.loss {
	case Everything:
		sizeKept = 0
	case Nothing:
		sizeKept = len(sizes) - 1
	}
	if k.size = sizes[sizeKept]; sizeKept < len(sizes)-1 {
		c.count.SizesLost++
	}
	if k.pages == nil {
		k.pages = map[int64]string{}
	}
	order := slices.Sorted(maps.Keys(versions))
	special, torn := c.special(len(order)), c.tear(len(order))
	kept := 0
	for i, p := range order {
		all := versions[p]
		if !c.keep(i == special) {
			continue
		}
		kept++
		v := len(all) - 1
		if c.loss == Some {
			v = c.rng.IntN(len(all))
		}
		before := k.page(p)
		if v > 0 {
			before = all[v-1]
		}
		k.pages[p] = all[v]
		if i == torn && before != all[v] {
			k.pages[p] = c.torn(before, all[v])
			c.count.PagesTorn = append(c.count.PagesTorn, Page{name, p})
		}
	}
	c.count.PagesKept += kept
	c.count.PagesLost += len(order) - kept
	if kept > 0 && kept < len(order) {
		c.count.FilesTorn++
	}
	return k
}

// versions returns the sizes that a file had since it was synced, and what each page that was written since has
// been.
func (n *node) versions() (sizes []int64, pages map[int64][]string) {
	now := n.content.clone()
	sizes, pages = []int64{now.size}, map[int64][]string{}
	for _, w := range n.writes {
		for p, is := range now.after(w) {
			pages[p] = append(pages[p], is)
		}
		if now.apply(w); now.size != sizes[len(sizes)-1] {
			sizes = append(sizes, now.size)
		}
	}
	return sizes, pages
}

// tear chooses a page to be torn; -1: none.
func (c *cutter) tear(of int) int {
	if c.loss == Everything || of == 0 || c.rng.IntN(3) == 0 {
		return -1
	}
	return c.rng.IntN(of)
}

// torn is a page of which part was written: some of its sectors, or all up to some byte.
func (c *cutter) torn(before, after string) string {
	if c.rng.IntN(2) == 0 {
		at := c.rng.IntN(differing(before, after)) + 1 // or nothing would be torn
		return after[:at] + before[at:]
	}
	page := ""
	for from := 0; from < pageSize; from += sectorSize {
		if c.rng.IntN(2) == 0 {
			page += before[from : from+sectorSize]
		} else {
			page += after[from : from+sectorSize]
		}
	}
	return page
}

// differing is how far two pages differ: behind that byte they are equal.
func differing(a, b string) int {
	for i := pageSize - 1; i > 0; i-- {
		if a[i] != b[i] {
			return i
		}
	}
	return 1
}
