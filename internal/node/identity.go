package node

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A node lives in a folder of its own:
//
//	lock            held by the process that runs on it
//	identity.json   who it is; written once, before anything else
//	genesis.json    the cluster that it was founded in; written once
//	founded.json    written when its groups' founding entries were; a log without one has been lost since
//	lost.json       written when others refused this disk, as an old copy or as none of theirs; it never takes part again
//	starts.json     how replicas, its own and others, were last seen; see notes
//	pN/             its replica of partition N; see package partition
const (
	lockFile     = "lock"
	identityFile = "identity.json"
	genesisFile  = "genesis.json"
	foundedFile  = "founded.json"
	startsFile   = "starts.json"
	lostFile     = "lost.json"
)

// ErrIdentityLost says that a node's folder holds data but not whose. An identity dies with the disk and is
// never made up for data that is there.
var ErrIdentityLost = errors.New("folder holds a node's data but no identity")

// Identity says who a node is. The incarnation is drawn when its folder is created, so an empty disk can never
// vote under the id of the one that it replaces.
type Identity struct {
	Name        string `json:"name"`
	Incarnation string `json:"incarnation"` // 16 hex digits
}

// ServerID is the id and address in Raft of all the node's replicas: it names this disk, not a place.
func (i Identity) ServerID() string { return i.Name + "-" + i.Incarnation }

const incarnationDigits = 16

// nameOf returns the name of the node that a server id is of; empty: it is none.
func nameOf(serverID string) string {
	at := len(serverID) - incarnationDigits - 1
	if at < 1 || serverID[at] != '-' || !validName(serverID[:at]) {
		return ""
	}
	if _, err := hex.DecodeString(serverID[at+1:]); err != nil {
		return ""
	}
	return serverID[:at]
}

// openIdentity returns the identity in a folder, which exists; where there is none it draws one. It returns
// [ErrIdentityLost] for a folder that holds data without an identity.
func openIdentity(folder, name string) (identity Identity, err error) {
	identity, err = readIdentity(folder, name)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return identity, err
	}
	if err := refuseOrphans(folder); err != nil {
		return Identity{}, err
	}
	var drawn [incarnationDigits / 2]byte
	_, _ = rand.Read(drawn[:]) // never fails
	identity = Identity{Name: name, Incarnation: hex.EncodeToString(drawn[:])}
	if err := writeOnce(folder, identityFile, identity); err != nil {
		return Identity{}, fmt.Errorf("write identity: %w", err)
	}
	return identity, nil
}

// readIdentity returns an error that is fs.ErrNotExist where there is none.
func readIdentity(folder, name string) (Identity, error) {
	if !validName(name) {
		return Identity{}, fmt.Errorf("node name %q: want a DNS label (a-z, 0-9, inner hyphens, at most 63)", name)
	}
	var i Identity
	path := filepath.Join(folder, identityFile)
	if err := readDocument(path, &i); err != nil {
		return Identity{}, err
	}
	raw, err := hex.DecodeString(i.Incarnation)
	switch {
	case err != nil || 2*len(raw) != incarnationDigits || !validName(i.Name):
		return Identity{}, fmt.Errorf("%s: not the identity of a node", path)
	case i.Name != name:
		return Identity{}, fmt.Errorf("%s: the disk of node %q, and this is node %q; give each node a folder of its own", path, i.Name, name)
	}
	return i, nil
}

func validName(name string) bool {
	return len(name) <= 63 && regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`).MatchString(name)
}

// refuseOrphans returns ErrIdentityLost where a folder without identity holds anything of a node, a replica's
// folder or files of it included.
func refuseOrphans(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case name == lockFile, strings.HasPrefix(name, "."), name == "lost+found": // what file systems put there
		default:
			return fmt.Errorf("%s: %w (%s is there)", folder, ErrIdentityLost, name)
		}
	}
	return nil
}
