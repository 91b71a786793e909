package policy

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/quorate/quorate/internal/keyspace"
)

// name checks the name of a policy, limit, quota or namespace: one that Kubernetes could give an object.
func (v *validator) name(path, name string) {
	v.token(path, name, ".-", "lower-case letters, digits, '-' and '.'")
}

// domainName checks a domain's name. Gateways' own domain names hold '_' and '/' too.
func (v *validator) domainName(path, name string) {
	v.token(path, name, ".-_/", "lower-case letters, digits, '-', '.', '_' and '/'")
}

func (v *validator) token(path, s, punctuation, allowed string) {
	switch {
	case s == "":
		v.add(path, "is required")
	case len(s) > MaxNameBytes:
		v.add(path, "has %d bytes, at most %d are allowed", len(s), MaxNameBytes)
	case strings.ContainsFunc(s, func(r rune) bool { return !isAlnum(r) && !strings.ContainsRune(punctuation, r) }):
		v.add(path, "%q may hold only %s", s, allowed)
	case !isAlnum(rune(s[0])) || !isAlnum(rune(s[len(s)-1])):
		v.add(path, "%q must begin and end with a letter or digit", s)
	}
}

func isAlnum(r rune) bool { return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' }

// entries checks the entries of a match or when, sorted by name.
func (v *validator) entries(path string, entries []keyspace.Entry) {
	if len(entries) > keyspace.MaxEntries {
		v.add(path, "has %d entries, at most %d are allowed", len(entries), keyspace.MaxEntries)
	}
	for i, e := range entries {
		if !v.entryName(path, e.Name) {
			continue
		}
		at := path + "." + e.Name
		if i > 0 && entries[i-1].Name == e.Name {
			v.add(at, "is given twice")
		}
		switch bad := strings.IndexFunc(e.Value, isUnreadable); {
		case e.Value == "":
			v.add(at, "has an empty value, which no descriptor's entry is matched by")
		case len(e.Value) > keyspace.MaxValueLen:
			v.add(at, "has a value of %d bytes, at most %d are allowed", len(e.Value), keyspace.MaxValueLen)
		case !utf8.ValidString(e.Value):
			v.add(at, "has a value that is not UTF-8")
		case bad >= 0:
			v.add(at, "has a value with a character that can't be read at byte %d", bad)
		}
	}
}

// entryNames checks a list of entry names, sorted.
func (v *validator) entryNames(path string, names []string) {
	if len(names) > keyspace.MaxEntries {
		v.add(path, "has %d names, at most %d are allowed", len(names), keyspace.MaxEntries)
	}
	for i, name := range names {
		if v.entryName(path, name) && i > 0 && names[i-1] == name {
			v.add(path, "%q is given twice", name)
		}
	}
}

func (v *validator) entryName(path, name string) bool {
	switch {
	case name == "":
		v.add(path, "has an entry with an empty name")
	case len(name) > keyspace.MaxNameLen:
		v.add(path, "has an entry name of %d bytes, at most %d are allowed", len(name), keyspace.MaxNameLen)
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }):
		v.add(path, "has the entry name %q; only printing ASCII characters without spaces are allowed", name)
	default:
		return true
	}
	return false
}

// isUnreadable says which characters no value in a policy may have: those that YAML or JSON would have to
// escape, or that an editor wouldn't show. The list is ours, not the unicode package's, whose tables change
// with the version of Go: all nodes must agree.
func isUnreadable(r rune) bool {
	return r < ' ' || 0x7f <= r && r <= 0x9f || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffe || r == 0xffff
}

// quote quotes what somebody wrote, the front of it if it is long.
func quote(s string) string {
	const enough = 60
	if len(s) > enough {
		return strconv.Quote(s[:enough]) + "..."
	}
	return strconv.Quote(s)
}
