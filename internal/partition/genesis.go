package partition

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/raft"
)

// ErrGenesisDiffers says that two genesis documents meet that are not the same.
var ErrGenesisDiffers = errors.New("genesis documents differ")

// Genesis is the document that a group is founded with. Every initial replica holds the same one; it
// is written before anything else that they share, and never changes.
type Genesis struct {
	Cluster    [16]byte // drawn at genesis
	Seed       [16]byte // of the cluster's key hash; drawn at genesis, secret
	Partitions int      // at least 1
	Replicas   []string // server ids of the initial replicas, sorted
}

// NewGenesis draws a cluster id and a seed for the given server ids.
func NewGenesis(partitions int, replicas []string) Genesis {
	g := Genesis{Partitions: partitions, Replicas: slices.Sorted(slices.Values(replicas))}
	_, _ = rand.Read(g.Cluster[:]) // never fails
	_, _ = rand.Read(g.Seed[:])
	return g
}

// Equal tells whether two documents say the same.
func (g Genesis) Equal(o Genesis) bool {
	return g.Cluster == o.Cluster && g.Seed == o.Seed && g.Partitions == o.Partitions && slices.Equal(g.Replicas, o.Replicas)
}

// Names tells whether the server id is one of the initial replicas.
func (g Genesis) Names(serverID string) bool { return slices.Contains(g.Replicas, serverID) }

// Configuration is the membership that Raft begins with: every initial replica votes, and its
// address is its server id.
func (g Genesis) Configuration() raft.Configuration {
	var c raft.Configuration
	for _, id := range g.Replicas {
		c.Servers = append(c.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
	}
	return c
}

// WriteGenesis writes the document into dir/name. The same one may be written again; another one
// gives [ErrGenesisDiffers] and leaves what is there.
func WriteGenesis(dir, name string, g Genesis) error {
	if err := g.validate(); err != nil {
		return err
	}
	err := writeOnce(filepath.Join(dir, name), genesisFile, g.document())
	if err == nil || !errors.Is(err, fs.ErrExist) {
		return err
	}
	there, err := ReadGenesis(dir, name)
	if err != nil {
		return err
	}
	if !there.Equal(g) {
		return fmt.Errorf("replica %s: %w", name, ErrGenesisDiffers)
	}
	return nil
}

// MarkFounded notes in dir/name that the replica has its founding entry. From then on a folder without
// it has lost its log, and nothing is founded there again.
func MarkFounded(dir, name string) error {
	err := writeOnce(filepath.Join(dir, name), foundedFile, struct{}{})
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

func isFounded(folder string) bool {
	_, err := os.Lstat(filepath.Join(folder, foundedFile))
	return err == nil
}

// ReadGenesis returns the document in dir/name, or an error that is fs.ErrNotExist.
func ReadGenesis(dir, name string) (Genesis, error) {
	path := filepath.Join(dir, name, genesisFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return Genesis{}, err
	}
	g, err := parseGenesis(b)
	if err != nil {
		return Genesis{}, fmt.Errorf("read %s: %w", path, err)
	}
	return g, nil
}

func parseGenesis(b []byte) (Genesis, error) {
	var d genesisDocument
	if err := parseDocument(b, &d); err != nil {
		return Genesis{}, err
	}
	return d.genesis()
}

func (g Genesis) validate() error {
	switch {
	case g.Partitions < 1 || g.Partitions > 4096:
		return fmt.Errorf("genesis: %d partitions, want 1 to 4096", g.Partitions)
	case len(g.Replicas) == 0:
		return errors.New("genesis: no replicas")
	case !slices.IsSorted(g.Replicas):
		return errors.New("genesis: replicas are not sorted")
	case len(slices.Compact(slices.Clone(g.Replicas))) != len(g.Replicas):
		return errors.New("genesis: a replica is named twice")
	case g.Cluster == [16]byte{} || g.Seed == [16]byte{}:
		return errors.New("genesis: cluster id or seed is missing")
	}
	return nil
}

// genesisDocument is how a Genesis is written.
type genesisDocument struct {
	Version    int      `json:"version"`
	Cluster    string   `json:"cluster"`
	Seed       string   `json:"seed"`
	Partitions int      `json:"partitions"`
	Replicas   []string `json:"replicas"`
}

const genesisVersion = 1

func (g Genesis) document() genesisDocument {
	return genesisDocument{
		Version: genesisVersion, Partitions: g.Partitions, Replicas: g.Replicas,
		Cluster: hex.EncodeToString(g.Cluster[:]), Seed: hex.EncodeToString(g.Seed[:]),
	}
}

func (d genesisDocument) genesis() (Genesis, error) {
	if d.Version != genesisVersion {
		return Genesis{}, fmt.Errorf("version %d, this software reads %d", d.Version, genesisVersion)
	}
	g := Genesis{Partitions: d.Partitions, Replicas: d.Replicas}
	if err := errors.Join(unhex(&g.Cluster, d.Cluster), unhex(&g.Seed, d.Seed)); err != nil {
		return Genesis{}, err
	}
	return g, g.validate()
}

func unhex(into *[16]byte, digits string) error {
	b, err := hex.DecodeString(digits)
	if err != nil || len(b) != len(into) {
		return errors.New("cluster id or seed is not 32 hex digits")
	}
	copy(into[:], b)
	return nil
}
