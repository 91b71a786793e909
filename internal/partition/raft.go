package partition

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// openRaft starts the consensus library under the settings that its hazards ask for.
func openRaft(cfg Config, machine raft.FSM, f *followers) (*raft.Raft, error) {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(cfg.ID)
	c.HeartbeatTimeout, c.ElectionTimeout = cfg.Election, cfg.Election
	c.LeaderLeaseTimeout = cfg.Election / 2
	// Followers learn of a commit with the next entry or after this long; only a
	// snapshot or a new leader looks at their state, so rarely is cheaper.
	c.CommitTimeout = 250 * time.Millisecond
	// An entry holds up to 1 MiB of checks.
	c.MaxAppendEntries = 16
	c.SnapshotThreshold = math.MaxUint64 // Group.compact goes by bytes
	c.Logger = raftLog(cfg.Log)
	if cfg.Bootstrap {
		if err := cfg.Stores.Bootstrap(cfg.Replicas); err != nil {
			return nil, fmt.Errorf("write the founding entry: %w", err)
		}
	}
	// It reads its log before it starts anything, and panics at an entry that it can't read.
	var r *raft.Raft
	err := protect(func() (err error) {
		r, err = raft.NewRaft(c, machine, cfg.Stores.Log, cfg.Stores.Stable,
			readSnapshots{cfg.Stores.Snapshots, f}, followed{cfg.Transport, f})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("start raft: %w", err)
	}
	return r, nil
}

// raftLog lets the library log through l, one level lower than it thinks: what it
// warns of, elections above all, is what it is there for.
func raftLog(l *slog.Logger) hclog.Logger {
	h := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Off, Output: io.Discard})
	h.RegisterSink(sink{l})
	return h
}

type sink struct{ log *slog.Logger }

// Accept implements hclog.SinkAdapter.
func (s sink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	switch {
	case isFailedRequest(msg):
		s.log.Debug("raft: "+msg, args...)
	case level >= hclog.Error:
		s.log.Error("raft: "+msg, args...)
	case level >= hclog.Warn:
		s.log.Info("raft: "+msg, args...)
	case level >= hclog.Info:
		s.log.Debug("raft: "+msg, args...)
	}
}

// isFailedRequest tells of messages about a peer that doesn't answer, one for each request: the transport says
// once that a link is down, and why.
func isFailedRequest(msg string) bool {
	for _, what := range []string{"failed to heartbeat to", "failed to appendEntries to", "failed to make requestVote RPC", "failed to contact"} {
		if strings.HasPrefix(msg, what) {
			return true
		}
	}
	return false
}
