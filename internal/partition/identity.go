package partition

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// A replica lives in DIR/NAME:
//
//	identity.json   who it is; written once, before anything else
//	genesis.json    the group that it was founded in; written once
//	founded.json    written when the founding entry was; a log without it has been lost since
//	peers.json      how the replicas were last seen; see Start
//	raft.db         its log, term, vote and start number
//	snapshots/      its snapshots
const (
	identityFile  = "identity.json"
	genesisFile   = "genesis.json"
	foundedFile   = "founded.json"
	peersFile     = "peers.json"
	logFile       = "raft.db"
	snapshotsName = "snapshots" // fixed by the library's file snapshot store
)

// ErrIdentityLost says that a replica's folder holds data but not whose. An identity dies with the
// disk and is never made up for data that is there.
var ErrIdentityLost = errors.New("folder holds a replica's data but no identity")

// Identity says who a replica is. The incarnation is drawn when its folder is created, so an empty
// disk can never vote under the id of the one that it replaces.
type Identity struct {
	Name        string `json:"name"`
	Incarnation string `json:"incarnation"` // 16 hex digits
}

// ServerID is the replica's id and address in Raft: it names this disk, not a place.
func (i Identity) ServerID() string { return i.Name + "-" + i.Incarnation }

// OpenIdentity returns the identity in dir/name, and whether it was there; else it creates the
// folder with a new one. Name is a DNS label. It returns [ErrIdentityLost] for a folder that holds
// data without an identity.
func OpenIdentity(dir, name string) (identity Identity, existed bool, err error) {
	identity, err = readIdentity(dir, name)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return identity, err == nil, err
	}
	folder := filepath.Join(dir, name)
	if err := makeFolder(folder); err != nil {
		return Identity{}, false, fmt.Errorf("create replica folder: %w", err)
	}
	if err := refuseOrphans(folder); err != nil {
		return Identity{}, false, err
	}
	var drawn [8]byte
	_, _ = rand.Read(drawn[:]) // never fails
	identity = Identity{Name: name, Incarnation: hex.EncodeToString(drawn[:])}
	err = writeOnce(folder, identityFile, identity)
	if errors.Is(err, fs.ErrExist) { // another process was faster: its identity stands
		identity, err = readIdentity(dir, name)
		return identity, err == nil, err
	}
	if err != nil {
		return Identity{}, false, fmt.Errorf("write identity: %w", err)
	}
	return identity, false, nil
}

// readIdentity returns an error that is fs.ErrNotExist where there is none.
func readIdentity(dir, name string) (Identity, error) {
	if !validName(name) {
		return Identity{}, fmt.Errorf("replica name %q: want a DNS label (a-z, 0-9, inner hyphens, at most 63)", name)
	}
	var i Identity
	path := filepath.Join(dir, name, identityFile)
	if err := readDocument(path, &i); err != nil {
		return Identity{}, err
	}
	if raw, err := hex.DecodeString(i.Incarnation); i.Name != name || err != nil || len(raw) != 8 {
		return Identity{}, fmt.Errorf("%s: not the identity of a replica named %q", path, name)
	}
	return i, nil
}

func validName(name string) bool {
	return len(name) <= 63 && regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`).MatchString(name)
}

// refuseOrphans returns ErrIdentityLost where a folder without identity isn't empty.
func refuseOrphans(folder string) error {
	for _, name := range []string{genesisFile, foundedFile, peersFile, logFile, snapshotsName} {
		switch _, err := os.Lstat(filepath.Join(folder, name)); {
		case err == nil:
			return fmt.Errorf("%s: %w (%s is there)", folder, ErrIdentityLost, name)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return nil
}

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
	return syncFolder(folder)
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
	return syncFolder(folder)
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

// MakeFolders creates a folder, and those above it that are missing, such that they survive a loss of
// power: a name that is only in memory takes all below it with it.
func MakeFolders(path string) error {
	path = filepath.Clean(path)
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := MakeFolders(filepath.Dir(path)); err != nil {
		return err
	}
	return makeFolder(path)
}

// makeFolder creates a folder, if need be, such that it survives a loss of power.
func makeFolder(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder makes the names in a folder durable.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
