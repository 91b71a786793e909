package node_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/node"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/transport"
)

// bubbleClock follows a bubble's time.
type bubbleClock struct{ origin time.Time }

func (c bubbleClock) Monotonic() int64 { return int64(time.Since(c.origin)) }
func (c bubbleClock) Raw() int64       { return int64(time.Since(c.origin)) }

func openInBubble(t *testing.T, dir string, network *transport.Network, set policy.Set) *node.Cluster {
	t.Helper()
	return openRegistered(t, dir, network, set, prometheus.NewRegistry())
}

func openRegistered(t *testing.T, dir string, network *transport.Network, set policy.Set, registry *prometheus.Registry) *node.Cluster {
	t.Helper()
	c, err := node.Open(node.Config{
		Dir: dir, Set: set, Registry: registry, Log: slog.New(slog.DiscardHandler),
		Source: bubbleClock{time.Now()}, Network: network,
	})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return c
}

func closed(t *testing.T, c *node.Cluster) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func readyInBubble(t *testing.T, c *node.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Ready(ctx); err != nil {
		t.Fatalf("ready: %v", err)
	}
}

// Checks find the leader wherever it is, and whoever leads next knows what was used.
func TestAFailoverForgetsNothing(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewNetwork(transport.Options{})
		c := openInBubble(t, dir, network, threePerMinute())
		defer closed(t, c)
		readyInBubble(t, c)
		want(t, c, "u42", partition.Allowed, partition.Allowed)
		used := []partition.Result{partition.Allowed, partition.Denied, partition.Denied}
		for i := range 3 {
			first := leaderOf(c)
			network.Isolate(raft.ServerAddress(first))
			time.Sleep(5 * time.Second)
			if next := leaderOf(c); next == first || next == "" {
				t.Fatalf("%s was cut off, and %q leads", first, next)
			}
			want(t, c, "u42", used[i])
			network.Heal()
			time.Sleep(5 * time.Second)
		}
	})
}

// leaderOf names the replica that most of the others follow.
func leaderOf(c *node.Cluster) (leader string) {
	votes := map[string]int{}
	for _, s := range c.Statuses() {
		if votes[s.Leader]++; s.Leader != "" && votes[s.Leader] == 2 {
			leader = s.Leader
		}
	}
	return leader
}

func TestWithoutAMajorityNothingIsAnswered(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewNetwork(transport.Options{})
		c := openInBubble(t, dir, network, threePerMinute())
		defer closed(t, c)
		readyInBubble(t, c)
		want(t, c, "u42", partition.Allowed)
		for _, s := range c.Statuses() {
			network.Isolate(raft.ServerAddress(s.ID))
		}
		time.Sleep(3 * time.Second)
		want(t, c, "u42", partition.NoQuorum)
		d, _ := keyspace.NewDescriptor([]keyspace.Entry{{Name: "principal", Value: "u42"}})
		if in := c.Inspect("video", d); in.Result != partition.NoQuorum {
			t.Errorf("inspect: result %d", in.Result)
		}
		if c.Leading() {
			t.Error("it says that a leader answers")
		}
		network.Heal()
		time.Sleep(5 * time.Second)
		want(t, c, "u42", partition.Allowed, partition.Allowed, partition.Denied)
	})
}

// A kept folder goes on with the set that it was founded with, or not at all.
func TestAnotherPolicySetOnAKeptFolderIsRefused(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := openInBubble(t, dir, nil, threePerMinute())
		readyInBubble(t, c)
		want(t, c, "u42", partition.Allowed)
		closed(t, c)

		other := threePerMinute()
		other.Policies[0].Limits[0].Amount = 1000
		c = openInBubble(t, dir, nil, other)
		if err := c.Ready(context.Background()); !errors.Is(err, partition.ErrOtherSet) {
			t.Errorf("ready: %v", err)
		}
		if err := <-c.Failed(); !errors.Is(err, partition.ErrOtherSet) {
			t.Errorf("failed: %v", err)
		}
		want(t, c, "u42", partition.Allowed, partition.Allowed, partition.Denied) // of three, as ever
		closed(t, c)

		c = openInBubble(t, dir, nil, threePerMinute())
		readyInBubble(t, c)
		want(t, c, "u42", partition.Denied)
		closed(t, c)
	})
}

func TestClosingUnderLoadAnswersEveryCallOnce(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := openInBubble(t, dir, nil, threePerMinute())
		readyInBubble(t, c)
		var calls sync.WaitGroup
		answers := make([]atomic.Int32, 2000)
		d, _ := keyspace.NewDescriptor([]keyspace.Entry{{Name: "principal", Value: "u42"}})
		for i := range answers {
			calls.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Microsecond)
				done := make(chan struct{}, 2)
				c.Submit(&partition.Call{
					Request: partition.Request{Domain: "video", Descriptors: []keyspace.Descriptor{d}, Cost: 1, ID: newID(), Unfenced: true},
					Done:    func(*partition.Call) { answers[i].Add(1); done <- struct{}{} },
				})
				<-done
			})
		}
		time.Sleep(10 * time.Millisecond)
		closed(t, c)
		closed(t, c) // once more is fine
		calls.Wait()
		time.Sleep(time.Minute)
		for i := range answers {
			if n := answers[i].Load(); n != 1 {
				t.Fatalf("call %d was answered %d times", i, n)
			}
		}
	})
}

// spoil overwrites a file of a replica and returns what puts it back.
func spoil(t *testing.T, dir, name, file string) (restore func()) {
	t.Helper()
	path := filepath.Join(dir, name, file)
	content, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte("{"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A start that fails lets go of what it opened.
func TestAStartThatFailsCanBeTriedAgain(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := openInBubble(t, dir, nil, threePerMinute())
		readyInBubble(t, c)
		want(t, c, "u42", partition.Allowed)
		closed(t, c)
		var restores []func()
		for _, name := range node.Names() {
			restores = append(restores, spoil(t, dir, name, "genesis.json"))
		}
		_, err := node.Open(node.Config{
			Dir: dir, Set: threePerMinute(), Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
			Source: bubbleClock{time.Now()},
		})
		if err == nil {
			t.Fatal("damaged genesis documents were accepted")
		}
		for _, restore := range restores {
			restore()
		}
		c = openInBubble(t, dir, nil, threePerMinute())
		readyInBubble(t, c)
		want(t, c, "u42", partition.Allowed, partition.Allowed, partition.Denied)
		closed(t, c)
	})
}

// One damaged disk is one lost disk, however it is damaged: the others go on.
func TestOneDamagedDiskStaysOutAndTheOthersGoOn(t *testing.T) {
	for file, damage := range map[string]func(path string) error{
		"identity.json":  func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
		"identity.json ": os.Remove,
		"identity.json  ": func(path string) error {
			return os.WriteFile(path, []byte(`{"name":"n1","incarnation":"0123456789abcdef"}`), 0o600)
		},
		"genesis.json": func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
		"raft.db":      func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
		"raft.db ":     os.Remove,
		"raft.db  ":    func(path string) error { return os.Truncate(path, 8192) },
		"snapshots/9-9-1/meta.json": func(path string) error { // of a term that the log doesn't know
			return errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("{"), 0o600))
		},
	} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			c := openInBubble(t, dir, nil, threePerMinute())
			readyInBubble(t, c)
			want(t, c, "u42", partition.Allowed, partition.Allowed, partition.Allowed)
			closed(t, c)
			if err := damage(filepath.Join(dir, "n1", strings.TrimSpace(file))); err != nil {
				t.Fatal(err)
			}
			c = openInBubble(t, dir, nil, threePerMinute())
			defer closed(t, c)
			for _, r := range c.Replicas() {
				if r.Awaiting != (r.Name == "n1") {
					t.Errorf("%s: %+v", file, r)
				}
			}
			readyInBubble(t, c)
			want(t, c, "u42", partition.Denied)
		})
	}
}

// A snapshot that can't be read is a lost disk too, whether its bytes or what they say
// make no sense.
func TestADamagedSnapshotStaysOutAlone(t *testing.T) {
	for _, flip := range []bool{false, true} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			c := openInBubble(t, dir, nil, threePerMinute())
			readyInBubble(t, c)
			want(t, c, "u42", partition.Allowed, partition.Allowed, partition.Allowed)
			term := c.Statuses()[0].Term
			closed(t, c)
			addSnapshot(t, filepath.Join(dir, "n1"), term, flip)
			c = openInBubble(t, dir, nil, threePerMinute())
			defer closed(t, c)
			for _, r := range c.Replicas() {
				if r.Awaiting != (r.Name == "n1") {
					t.Errorf("flipped %v: %+v", flip, r)
				}
			}
			readyInBubble(t, c)
			want(t, c, "u42", partition.Denied)
			select {
			case err := <-c.Failed():
				t.Errorf("flipped %v: the others end too: %v", flip, err)
			default:
			}
		})
	}
}

// addSnapshot puts a snapshot of no machine into a replica's folder, with a byte
// flipped if asked.
func addSnapshot(t *testing.T, folder string, term uint64, flip bool) {
	t.Helper()
	files, err := raft.NewFileSnapshotStore(folder, 2, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	sink, err := files.Create(1, 3, term, raft.Configuration{}, 1, nil)
	if err == nil {
		_, err = sink.Write([]byte("no machine wrote this"))
	}
	if err = errors.Join(err, sink.Close()); err != nil {
		t.Fatal(err)
	}
	if flip {
		path := filepath.Join(folder, "snapshots", sink.ID(), "state.bin")
		if err := os.WriteFile(path, []byte("No machine wrote this"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Logs that are gone are no fresh cluster: what was admitted isn't known any more.
func TestLogsThatAreGoneFoundNothingAnew(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := openInBubble(t, dir, nil, threePerMinute())
		readyInBubble(t, c)
		want(t, c, "u42", partition.Allowed, partition.Allowed, partition.Allowed)
		closed(t, c)
		for _, name := range node.Names() {
			if err := os.Remove(filepath.Join(dir, name, "raft.db")); err != nil {
				t.Fatal(err)
			}
		}
		_, err := node.Open(node.Config{
			Dir: dir, Set: threePerMinute(), Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
			Source: bubbleClock{time.Now()},
		})
		if !errors.Is(err, partition.ErrLogLost) {
			t.Errorf("%v", err)
		}
	})
}

func TestASetThatDoesNotCompileOpensNothing(t *testing.T) {
	dir := t.TempDir()
	bad := threePerMinute()
	bad.Policies[0].Limits = nil
	if _, err := node.Open(node.Config{Dir: dir, Set: bad, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)}); err == nil {
		t.Fatal("accepted")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestAClusterSaysWhatBecameOfItsReplicas(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := openInBubble(t, dir, nil, threePerMinute())
		readyInBubble(t, c)
		want(t, c, "u42", partition.Allowed)
		before := c.Replicas()
		if d := c.Domains(); len(d) != 1 || d[0] != "video" {
			t.Errorf("domains %v", d)
		}
		closed(t, c)
		if err := os.RemoveAll(filepath.Join(dir, "n2")); err != nil {
			t.Fatal(err)
		}
		c = openInBubble(t, dir, nil, threePerMinute())
		defer closed(t, c)
		readyInBubble(t, c)
		ids := map[string]string{}
		for _, r := range c.Replicas() {
			if r.Awaiting != (r.Name == "n2") {
				t.Errorf("%+v", r)
			}
			ids[r.Name] = r.ID
		}
		if ids["n1"] != before[0].ID || ids["n3"] != before[2].ID {
			t.Errorf("identities %v became %v", before, ids)
		}
		if n := len(c.Statuses()); n != 2 {
			t.Errorf("%d run", n)
		}
	})
}

// An old copy of one replica's disk, put back where a newer one was, has forgotten what it acknowledged.
// With the replica that remembers cut off, it would make a majority that admits a fourth of three.
func TestAnOldCopyOfADiskNeverVotes(t *testing.T) {
	for name, tc := range map[string]struct {
		what      string // is copied
		restarted bool   // between the copy and what it forgets
	}{
		"the folder, from before the last start": {"n1", true},
		"the log, from before the last start":    {"n1/raft.db", true},
		"the folder, of the last run":            {"n1", false},
		"the log, of the last run":               {"n1/raft.db", false},
	} {
		dir, old := t.TempDir(), t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			network := transport.NewNetwork(transport.Options{})
			c := openInBubble(t, dir, network, threePerMinute())
			readyInBubble(t, c)
			if tc.restarted {
				closed(t, c)
				copyTree(t, filepath.Join(dir, tc.what), filepath.Join(old, tc.what))
				network = transport.NewNetwork(transport.Options{})
				c = openInBubble(t, dir, network, threePerMinute())
				readyInBubble(t, c)
			} else {
				time.Sleep(time.Second) // all have what there is, and nobody writes
				copyTree(t, filepath.Join(dir, tc.what), filepath.Join(old, tc.what))
			}
			network.Isolate(raft.ServerAddress(idOf(c, "n3")))
			time.Sleep(5 * time.Second)
			want(t, c, "u42", partition.Allowed, partition.Allowed, partition.Allowed)
			closed(t, c)
			if err := os.RemoveAll(filepath.Join(dir, tc.what)); err != nil {
				t.Fatal(err)
			}
			copyTree(t, filepath.Join(old, tc.what), filepath.Join(dir, tc.what))

			network = transport.NewNetwork(transport.Options{})
			c = openInBubble(t, dir, network, threePerMinute())
			defer closed(t, c)
			network.Isolate(raft.ServerAddress(idOf(c, "n2")))
			for _, r := range c.Replicas() {
				if r.Awaiting != (r.Name == "n1") {
					t.Errorf("%s: %+v", name, r)
				}
			}
			time.Sleep(10 * time.Second)
			want(t, c, "u42", partition.NoQuorum)
			network.Heal()
			time.Sleep(10 * time.Second)
			want(t, c, "u42", partition.Denied)
		})
	}
}

func idOf(c *node.Cluster, name string) (id string) {
	for _, r := range c.Replicas() {
		if r.Name == name {
			id = r.ID
		}
	}
	return id
}

// copyTree copies a file or a folder.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := to + strings.TrimPrefix(path, from)
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil || d.IsDir() {
			return errors.Join(err, os.MkdirAll(target, 0o700))
		}
		b, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(target, b, 0o600))
	})
	if err != nil {
		t.Fatal(err)
	}
}
