package medium

import (
	"maps"
	"strings"
)

// pageSize is how much of a file the kernel writes at once, at least.
const pageSize = 4096

// content is the bytes of a file, by page; those of a page that isn't there are zero.
type content struct {
	size  int64
	pages map[int64]string
}

func (k *content) page(n int64) string {
	if p, ok := k.pages[n]; ok {
		return p
	}
	return empty(pageSize)
}

func empty(n int64) string { return strings.Repeat("\x00", int(n)) }

// apply changes the content, which nobody else may hold.
func (k *content) apply(w *write) {
	for n, p := range k.after(w) {
		if k.pages == nil {
			k.pages = map[int64]string{}
		}
		k.pages[n] = p
	}
	k.size = w.sizeAfter(k.size)
}

// after returns the pages that a write changes, as they are then.
func (k *content) after(w *write) map[int64]string {
	changed := map[int64]string{}
	if w.resize {
		for n, p := range k.pages {
			switch from := w.offset - n*pageSize; {
			case from <= 0:
				changed[n] = empty(pageSize)
			case from < pageSize:
				changed[n] = p[:from] + empty(pageSize-from)
			}
		}
		return changed
	}
	for rest, at := w.bytes, w.offset; rest != ""; {
		n, from := at/pageSize, at%pageSize
		part := rest[:min(int64(len(rest)), pageSize-from)]
		old := k.page(n)
		changed[n] = old[:from] + part + old[from+int64(len(part)):]
		rest, at = rest[len(part):], at+int64(len(part))
	}
	return changed
}

func (w *write) sizeAfter(size int64) int64 {
	if w.resize {
		return w.offset
	}
	return max(size, w.offset+int64(len(w.bytes)))
}

func (k *content) clone() content { return content{k.size, maps.Clone(k.pages)} }
