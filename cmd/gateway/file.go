package main

import (
	"path/filepath"
	"strings"

	"github.com/quorate/quorate/internal/configfile"
)

// readFile takes what the file says. Nothing of it is ignored.
func (r *reader) readFile(path string) (err error) {
	known := make([]configfile.Field, len(fields))
	for i, f := range fields {
		known[i] = configfile.Field{Name: f.name, Read: func(v configfile.Value) { r.value(f, v, filepath.Dir(path)) }}
	}
	r.file, err = configfile.Read(path, known...)
	return err
}

// value reads what a field has. A value that can't be read counts as given: what it says is no news.
func (r *reader) value(f field, v configfile.Value, folder string) {
	r.given[f.flag] = true
	read := configfile.Value.Text
	if f.list {
		read = list
	}
	text, ok := read(v)
	if !ok {
		return
	}
	if f.path && !filepath.IsAbs(text) {
		text = filepath.Join(folder, text)
	}
	if err := f.set(&r.settings, text); err != nil {
		v.Refuse("%s", err)
	}
}

// list reads a list as its flag has it.
func list(v configfile.Value) (string, bool) {
	items, ok := v.Texts()
	if ok && len(items) == 0 {
		v.Refuse("is empty")
		return "", false
	}
	for _, item := range items {
		if strings.Contains(item, ",") {
			v.Refuse("%q has a comma; give each one an item of its own", item)
			ok = false
		}
	}
	return strings.Join(items, ","), ok
}
