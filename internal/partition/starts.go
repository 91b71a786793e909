package partition

import (
	"cmp"

	"github.com/hashicorp/raft"
)

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

// Behind tells whether s can't be what a replica that was seen as o has become.
func (s Start) Behind(o Start) bool { return s.Number < o.Number || s.compareEntry(o) < 0 }

func (s Start) compareEntry(o Start) int {
	return cmp.Or(cmp.Compare(s.Term, o.Term), cmp.Compare(s.Index, o.Index))
}

// Later returns the most that both say.
func (s Start) Later(o Start) Start {
	number := max(s.Number, o.Number)
	if s.compareEntry(o) < 0 {
		s = o
	}
	s.Number = number
	return s
}

// BeginStart writes the next start number. It comes before anybody notes it and before Raft starts.
func (s *Stores) BeginStart() (Start, error) {
	number, err := orZero(s.Stable.GetUint64([]byte(startKey)))
	if err != nil {
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
