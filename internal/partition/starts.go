package partition

import (
	"cmp"

	"github.com/hashicorp/raft"
)

// startKey is where a replica keeps the number of its latest start: in the file of its log and votes,
// so that none of them goes back without it.
const startKey = "StartNumber"

// Start is how a replica was last seen: the number of its start, which grows by one with each, and
// the newest entry that it ever held. Raft replaces entries only by entries of a later term, and what it truncates
// before that is noted, so (Term, Index) never goes back.
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

// Seen reads the latest start number and the newest entry that was ever held.
func (s *Stores) Seen() (Start, error) {
	number, err := s.Stable.GetUint64([]byte(startKey))
	if err != nil {
		return Start{}, err
	}
	newest, err := s.newest()
	if err != nil {
		return Start{}, err
	}
	var truncated Start
	stable := stableStore{disk: s.disk, guard: s.guard}
	err = s.guard.do("read what was truncated", nil, func() (err error) { truncated, err = stable.highest(); return err })
	newest.Number = number
	return newest.Later(truncated), err
}

// newest is the newest entry, in the log or in a snapshot.
func (s *Stores) newest() (Start, error) {
	index, err := s.Log.LastIndex()
	if err != nil {
		return Start{}, err
	}
	if index > 0 {
		var last raft.Log
		if err := s.Log.GetLog(index, &last); err != nil {
			return Start{}, err
		}
		return Start{Term: last.Term, Index: index}, nil
	}
	snapshots, err := s.Snapshots.List()
	if err != nil || len(snapshots) == 0 {
		return Start{}, err
	}
	return Start{Term: snapshots[0].Term, Index: snapshots[0].Index}, nil
}
