package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/quorate/quorate/internal/partition"
)

// readDocument reads a JSON document strictly: a field that this version doesn't know might be one
// that it must not ignore.
func readDocument(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := parseDocument(b, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

func parseDocument(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows the document")
	}
	return nil
}

// writeOnce puts a JSON document in place, whole or not at all, so that it survives a loss of power.
// It returns fs.ErrExist where one is there already: a link, unlike a rename, never replaces what
// another process has just written.
func writeOnce(folder, name string, document any) (err error) {
	temporary, err := writeTemporary(folder, name, document)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(temporary)) }()
	if err := os.Link(temporary, filepath.Join(folder, name)); err != nil {
		return err
	}
	return partition.SyncFolder(folder)
}

// replaceDocument is writeOnce for a document that changes.
func replaceDocument(folder, name string, document any) error {
	temporary, err := writeTemporary(folder, name, document)
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, filepath.Join(folder, name)); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return partition.SyncFolder(folder)
}

// writeTemporary writes and syncs a document under a name of its own.
func writeTemporary(folder, name string, document any) (path string, err error) {
	b, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(folder, name+".*.tmp")
	if err != nil {
		return "", err
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// sweep removes documents that a process that ended left half written. Whoever calls it holds the lock.
func sweep(folder string) error {
	left, err := filepath.Glob(filepath.Join(folder, "*.tmp"))
	for _, path := range left {
		if e := os.Remove(path); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
