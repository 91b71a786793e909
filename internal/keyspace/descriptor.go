package keyspace

import "fmt"

// Bounds of what a check may carry. Lengths are in bytes.
const (
	MaxDescriptors = 16   // descriptors of one check
	MaxEntries     = 16   // entries of one descriptor
	MaxNameLen     = 128  // an entry's name, at least 1
	MaxValueLen    = 1024 // an entry's value, at least 0
)

// Entry is one name and value of a descriptor, as in principal=u42.
type Entry struct {
	Name, Value string
}

// Descriptor is what a check says about one thing to be limited: entries sorted by name, names unique.
// Make one with [NewDescriptor]; the zero value is the descriptor that says nothing.
type Descriptor []Entry

// NewDescriptor sorts entries by name, in place, and returns them as a Descriptor that shares their
// memory. It refuses more than [MaxEntries] entries, names that are empty, repeated or longer than
// [MaxNameLen], and values longer than [MaxValueLen]. Its errors are written for the caller of the API;
// they never hold a value, which may be private.
func NewDescriptor(entries []Entry) (Descriptor, error) {
	if len(entries) > MaxEntries {
		return nil, fmt.Errorf("descriptor has %d entries, at most %d are allowed", len(entries), MaxEntries)
	}
	for i, e := range entries {
		switch {
		case e.Name == "":
			return nil, fmt.Errorf("descriptor entry %d has an empty name", i+1)
		case len(e.Name) > MaxNameLen:
			return nil, fmt.Errorf("descriptor entry %d has a name of %d bytes, at most %d are allowed", i+1, len(e.Name), MaxNameLen)
		case len(e.Value) > MaxValueLen:
			return nil, fmt.Errorf("descriptor entry %q has a value of %d bytes, at most %d are allowed", e.Name, len(e.Value), MaxValueLen)
		}
	}
	SortEntries(entries)
	for i := 1; i < len(entries); i++ {
		if entries[i].Name == entries[i-1].Name {
			return nil, fmt.Errorf("descriptor entry %q is given twice", entries[i].Name)
		}
	}
	return entries, nil
}

// SortEntries sorts entries by name, bytewise, in place. Equal names keep their order.
func SortEntries(entries []Entry) {
	// Insertion sort: a descriptor has a few entries, most often already in order, and
	// slices.SortFunc calls its comparison through a pointer.
	for i := 1; i < len(entries); i++ {
		for j := i; j > 0 && entries[j].Name < entries[j-1].Name; j-- {
			entries[j], entries[j-1] = entries[j-1], entries[j]
		}
	}
}

// Get returns the value of the entry with that name and whether there is one. The value may be empty.
func (d Descriptor) Get(name string) (string, bool) {
	for i := range d {
		if d[i].Name == name {
			return d[i].Value, true
		}
	}
	return "", false
}

// Has reports whether the descriptor has the entry with a value that isn't empty: what a key needs, since
// an empty value would be one allowance shared by everybody who left it out.
func (d Descriptor) Has(name string) bool {
	value, _ := d.Get(name)
	return value != ""
}

// Contains reports whether every one of entries, sorted by name, is in d with the same value.
func (d Descriptor) Contains(entries []Entry) bool {
	i := 0
	for _, e := range entries {
		for i < len(d) && d[i].Name < e.Name {
			i++
		}
		if i == len(d) || d[i] != e {
			return false
		}
		i++
	}
	return true
}
