package power_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/test/rig"
)

// roleVariable makes this program another one: what is recorded under strace.
const (
	roleVariable   = "POWER_ROLE"
	folderVariable = "POWER_FOLDER"
	seedVariable   = "POWER_SEED"
	lengthVariable = "POWER_LENGTH"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		if err := play(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(rig.Run(func(p rig.Programs) int {
		programs = p
		return m.Run()
	}, "cmd/quotanode", "cmd/quotactl", "test/faults/faultnode"))
}

// programs are those of the product.
var programs rig.Programs

// play does what the plan of a seed says, on stores as a node opens them, and says on stdout where it is.
func play() error {
	seed, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64)
	if err != nil {
		return err
	}
	length, err := strconv.Atoi(os.Getenv(lengthVariable))
	if err != nil {
		return err
	}
	r := &replica{folder: os.Getenv(folderVariable)}
	for i, s := range plan(seed, length) {
		fmt.Printf("begin %d\n", i)
		if err := r.do(s); err != nil {
			return fmt.Errorf("step %d, %s: %w", i, s.kind, err)
		}
		fmt.Printf("end %d\n", i)
	}
	return r.stores.Close()
}

// replica is one replica's stores.
type replica struct {
	folder string
	stores *partition.Stores
	fatal  error
}

func (r *replica) open() (err error) {
	r.fatal = nil
	r.stores, err = partition.OpenStores(r.folder, partition.StoreOptions{
		Elapsed: func() int64 { return 0 },
		TimeOf: func(e []byte, term uint64) (int64, bool) {
			return timeIn(e), binary.BigEndian.Uint64(e[8:]) == term
		},
		SnapshotTime: func(snapshot io.Reader) (int64, error) {
			var b [8]byte
			_, err := io.ReadFull(snapshot, b[:])
			return int64(binary.BigEndian.Uint64(b[:])), err
		},
		Fatal: func(err error) { r.fatal = err },
	})
	return err
}

func (r *replica) do(s *step) error {
	switch s.kind {
	case "open":
		return r.begin()
	case "set":
		return r.stores.Stable.SetUint64([]byte(s.key), s.value)
	case "store":
		return r.stores.Log.StoreLogs(pointers(s.logs))
	case "delete":
		return r.stores.Log.DeleteRange(s.low, s.high)
	case "snapshot":
		return r.take(s.snapshot)
	}
	return fmt.Errorf("nobody knows how to %s", s.kind)
}

func pointers(logs []raft.Log) (list []*raft.Log) {
	for _, l := range logs {
		list = append(list, &l)
	}
	return list
}

// begin starts the replica, anew if it ran before.
func (r *replica) begin() error {
	if r.stores != nil {
		if err := r.stores.Close(); err != nil {
			return err
		}
	}
	if err := partition.MakeFolders(r.folder); err != nil {
		return err
	}
	if err := r.open(); err != nil {
		return err
	}
	_, err := r.stores.BeginStart()
	return err
}

func (r *replica) take(s saved) error {
	_, transport := raft.NewInmemTransport("a")
	sink, err := r.stores.Snapshots.Create(1, s.index, s.term, raft.Configuration{}, 0, transport)
	if err != nil {
		return err
	}
	_, err = sink.Write(s.content())
	return errors.Join(err, sink.Close())
}
