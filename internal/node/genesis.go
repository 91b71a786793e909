package node

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
)

var (
	// ErrGenesisDiffers says that two genesis documents meet that are not the same.
	ErrGenesisDiffers = errors.New("genesis documents differ")
	// ErrForeignDisk says that a node's disk isn't the one that the genesis document names.
	ErrForeignDisk = errors.New("disk is not the one that the genesis document names")
)

// Genesis is the document that a cluster is founded with. Every initial node holds the same one; it is written
// before anything else that they share, and never changes.
type Genesis struct {
	Cluster [16]byte // drawn at genesis
	Seed    [16]byte // of the cluster's key hash; drawn at genesis, secret
	Memory  uint64   // bound of each node's state, in logical bytes
	Nodes   []Member // the initial nodes, sorted by id
	// Groups has the server ids of each partition's replicas; the first is the one that leads where it can.
	Groups [][]string
	// System has those of the group that is to hold membership.
	System []string
}

// Member is an initial node.
type Member struct {
	ID   string `json:"id"`
	Zone string `json:"zone,omitempty"`
}

// newGenesis draws a cluster's id and seed, and places its groups.
func newGenesis(members []Member, partitions, replication int, memory uint64) Genesis {
	members = slices.SortedFunc(slices.Values(members), func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	g := Genesis{Memory: memory, Nodes: members, Groups: place(members, partitions, replication)}
	g.System = place(members, 1, min(replication, len(members)))[0]
	_, _ = rand.Read(g.Cluster[:]) // never fails
	_, _ = rand.Read(g.Seed[:])
	return g
}

// equal tells whether two documents say the same.
func (g Genesis) equal(o Genesis) bool {
	return g.Cluster == o.Cluster && g.Seed == o.Seed && g.Memory == o.Memory && slices.Equal(g.Nodes, o.Nodes) &&
		slices.Equal(g.System, o.System) && slices.EqualFunc(g.Groups, o.Groups, slices.Equal[[]string])
}

// names tells whether the server id is that of an initial node.
func (g Genesis) names(id string) bool {
	return slices.ContainsFunc(g.Nodes, func(m Member) bool { return m.ID == id })
}

// idOf returns the server id of the initial node with that name, empty if there is none.
func (g Genesis) idOf(name string) string {
	for _, m := range g.Nodes {
		if nameOf(m.ID) == name {
			return m.ID
		}
	}
	return ""
}

// hosted returns the partitions of which the node with that id has a replica.
func (g Genesis) hosted(id string) (partitions []int) {
	for p, replicas := range g.Groups {
		if slices.Contains(replicas, id) {
			partitions = append(partitions, p)
		}
	}
	return partitions
}

// settings are what a partition's first leader logs.
func (g Genesis) settings(p int) fsm.Settings {
	s := fsm.Settings{
		Seed: g.Seed, Partition: uint16(p), Partitions: uint16(len(g.Groups)), Epoch: 1, Horizon: fsm.DefaultHorizon,
		Bound: fsm.BoundFor(g.Memory, len(g.Nodes), len(g.Groups), len(g.Groups[p])),
	}
	s.DomainBound = max(1, s.Bound/2)
	return s
}

// writeGenesis writes the document into a folder. The same one may be written again; another one gives
// [ErrGenesisDiffers] and leaves what is there.
func writeGenesis(folder string, g Genesis) error {
	if err := g.validate(); err != nil {
		return err
	}
	err := writeOnce(folder, genesisFile, g.document())
	if err == nil || !errors.Is(err, fs.ErrExist) {
		return err
	}
	there, err := readGenesis(folder)
	if err != nil {
		return err
	}
	if !there.equal(g) {
		return ErrGenesisDiffers
	}
	return nil
}

// readGenesis returns the document in a folder, nil if there is none.
func readGenesis(folder string) (*Genesis, error) {
	var d genesisDocument
	path := filepath.Join(folder, genesisFile)
	err := readDocument(path, &d)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	g, err := d.genesis()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &g, nil
}

// parseGenesis reads a document as another node sends it.
func parseGenesis(b []byte) (Genesis, error) {
	var d genesisDocument
	if err := parseDocument(b, &d); err != nil {
		return Genesis{}, fmt.Errorf("genesis: %w", err)
	}
	return d.genesis()
}

// encode is what parseGenesis reads.
func (g Genesis) encode() []byte {
	b, err := json.Marshal(g.document())
	if err != nil {
		panic("node: " + err.Error()) // plain data of our own types
	}
	return b
}

func (g Genesis) validate() error {
	switch n := len(g.Groups); {
	case n < 1 || n > keyspace.Slots:
		return fmt.Errorf("genesis: %d partitions, want 1 to %d", n, keyspace.Slots)
	case g.Cluster == [16]byte{} || g.Seed == [16]byte{}:
		return errors.New("genesis: cluster id or seed is missing")
	case !slices.IsSortedFunc(g.Nodes, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) }):
		return errors.New("genesis: nodes are not sorted")
	}
	seen := map[string]bool{}
	for _, m := range g.Nodes {
		name := nameOf(m.ID)
		if name == "" || seen[name] {
			return fmt.Errorf("genesis: %q is no server id, or its node is named twice", m.ID)
		}
		seen[name] = true
	}
	for _, replicas := range append(slices.Clone(g.Groups), g.System) {
		if err := g.validateReplicas(replicas); err != nil {
			return err
		}
	}
	if err := g.settings(0).Validate(); err != nil {
		return fmt.Errorf("genesis: %w", err)
	}
	return nil
}

func (g Genesis) validateReplicas(replicas []string) error {
	if len(replicas) == 0 {
		return errors.New("genesis: a group without replicas")
	}
	for i, id := range replicas {
		if !g.names(id) || slices.Contains(replicas[:i], id) {
			return fmt.Errorf("genesis: replica %q of a group is none of the nodes, or is named twice", id)
		}
	}
	return nil
}

// genesisDocument is how a Genesis is written.
type genesisDocument struct {
	Version int        `json:"version"`
	Cluster string     `json:"cluster"`
	Seed    string     `json:"seed"`
	Memory  uint64     `json:"memory"`
	Nodes   []Member   `json:"nodes"`
	Groups  [][]string `json:"groups"`
	System  []string   `json:"system"`
}

const genesisVersion = 1

func (g Genesis) document() genesisDocument {
	return genesisDocument{
		Version: genesisVersion, Memory: g.Memory, Nodes: g.Nodes, Groups: g.Groups, System: g.System,
		Cluster: hex.EncodeToString(g.Cluster[:]), Seed: hex.EncodeToString(g.Seed[:]),
	}
}

func (d genesisDocument) genesis() (Genesis, error) {
	if d.Version != genesisVersion {
		return Genesis{}, fmt.Errorf("version %d, this software reads %d", d.Version, genesisVersion)
	}
	g := Genesis{Memory: d.Memory, Nodes: d.Nodes, Groups: d.Groups, System: d.System}
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
