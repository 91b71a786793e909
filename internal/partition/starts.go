package partition

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// ErrRewound says that a replica's disk holds less than others saw it hold: an old copy was put back.
// What it acknowledged since, and its votes, are gone, so it is a lost disk.
var ErrRewound = errors.New("the disk is an old copy of itself")

// startKey is where a replica keeps the number of its latest start: in the file of its log and votes,
// so that none of them goes back without it.
const startKey = "StartNumber"

// Start is how a replica was last seen: the number of its start, which grows by one with each, and
// its newest entry. Raft replaces entries only by entries of a later term, so (Term, Index) never
// goes back.
type Start struct {
	Number uint64 `json:"start"`
	Term   uint64 `json:"term"`
	Index  uint64 `json:"index"`
}

// behind tells whether s can't be what a replica that was seen as o has become.
func (s Start) behind(o Start) bool { return s.Number < o.Number || s.compareEntry(o) < 0 }

func (s Start) compareEntry(o Start) int {
	return cmp.Or(cmp.Compare(s.Term, o.Term), cmp.Compare(s.Index, o.Index))
}

// later returns the most that both say.
func (s Start) later(o Start) Start {
	number := max(s.Number, o.Number)
	if s.compareEntry(o) < 0 {
		s = o
	}
	s.Number = number
	return s
}

// BeginStart writes the next start number. It comes before anybody notes it and before Raft starts.
func (s *Stores) BeginStart() (Start, error) {
	number, err := s.Stable.GetUint64([]byte(startKey))
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return Start{}, err
	}
	if err := s.Stable.SetUint64([]byte(startKey), number+1); err != nil {
		return Start{}, err
	}
	return s.Seen()
}

// Seen reads the latest start number and the newest entry.
func (s *Stores) Seen() (Start, error) {
	number, err := s.Stable.GetUint64([]byte(startKey))
	if err != nil {
		return Start{}, err
	}
	index, err := s.Log.LastIndex()
	if err != nil {
		return Start{}, err
	}
	if index > 0 {
		var last raft.Log
		if err := s.Log.GetLog(index, &last); err != nil {
			return Start{}, err
		}
		return Start{number, last.Term, index}, nil
	}
	snapshots, err := s.Snapshots.List()
	if err != nil || len(snapshots) == 0 {
		return Start{Number: number}, err
	}
	return Start{number, snapshots[0].Term, snapshots[0].Index}, nil
}

// NotePeers notes in dir/name how replicas were seen, by server id. What the folder knows already is
// never replaced by less.
func NotePeers(dir, name string, seen map[string]Start) error {
	folder := filepath.Join(dir, name)
	peers, err := readPeers(folder)
	if err != nil {
		return err
	}
	if peers == nil {
		peers = map[string]Start{}
	}
	for id, s := range seen {
		peers[id] = peers[id].later(s)
	}
	return replaceDocument(folder, peersFile, peers)
}

func readPeers(folder string) (peers map[string]Start, err error) {
	err = readDocument(filepath.Join(folder, peersFile), &peers)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return peers, err
}

// findRewound marks as damaged every replica that is behind what any folder knows of it.
func findRewound(states []State) []State {
	marked := make([]State, 0, len(states))
	for _, s := range states {
		for _, by := range states {
			if seen := by.Peers[s.ServerID]; s.Condition != Damaged && s.Start.behind(seen) {
				s.Condition, s.Damage = Damaged, fmt.Errorf(
					"%w: it shows start %d and entry %d of term %d, %s knows it at start %d and entry %d of term %d",
					ErrRewound, s.Start.Number, s.Start.Index, s.Start.Term, by.Name, seen.Number, seen.Index, seen.Term)
			}
		}
		marked = append(marked, s)
	}
	return marked
}
