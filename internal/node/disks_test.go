package node_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/partition"
)

// A node whose disk is gone comes back as somebody else, and stays out.
func TestABlankDiskStaysOutAndNothingIsForgotten(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start()
	tr.ready().apply(threePerMinute())
	tr.want("u1", fourth...)
	for _, name := range []string{"n1", "n2"} {
		tr.stop(name)
		if err := os.RemoveAll(filepath.Join(tr.dir, name)); err != nil {
			t.Fatal(err)
		}
		tr.start(name)
		tr.until(name+" stays out", func() bool {
			state, detail := tr.node(name).State()
			return state == "awaiting replacement" && strings.Contains(detail, "disk")
		})
		if ok, why := tr.node(name).Ready(); ok {
			t.Errorf("%s passes for ready: %s", name, why)
		}
		if name == "n1" {
			tr.want("u1", partition.Denied)
		}
	}
	tr.until("no answer", func() bool { return tr.node("n3").ask(t, "u1").Result > partition.UnknownDomain })
	for _, m := range tr.running() {
		if o := m.ask(t, "u9"); o.Result <= partition.UnknownDomain {
			t.Errorf("%s answers with %d", m.ID(), o.Result)
		}
	}
}

// Disks that are lost one after the other, until none is left, are no fresh cluster: what was admitted isn't known any
// more, and that it was is.
func TestDisksThatAreLostOneByOneFoundNothingAnew(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, only(1))
	tr.start()
	tr.ready().apply(threePerMinute())
	tr.want("u1", fourth...)
	out := func(name string) {
		tr.until(name+" stays out", func() bool {
			state, _ := tr.node(name).State()
			return state == "awaiting replacement"
		})
	}
	for _, name := range tr.names[:2] {
		tr.stop(name)
		if err := os.RemoveAll(filepath.Join(tr.dir, name)); err != nil {
			t.Fatal(err)
		}
		tr.start(name)
		out(name)
	}
	for _, name := range tr.names {
		tr.stop(name)
	}
	if err := os.RemoveAll(filepath.Join(tr.dir, "n3")); err != nil {
		t.Fatal(err)
	}
	tr.start()
	out("n1")
	out("n2")
	if o := tr.node("n3").ask(t, "u1"); o.Result <= partition.UnknownDomain {
		t.Errorf("result %d", o.Result)
	}
}

// An old copy of a disk forgot what it acknowledged since, and its votes. Put in the disk's place it must not
// help anybody to a majority.
func TestAnOldCopyOfADiskNeverVotes(t *testing.T) {
	for name, tc := range map[string]struct {
		what      string // is copied
		restarted bool   // between the copy and what it forgets
	}{
		"the folder, from before the last start": {"n1", true},
		"the logs, from before the last start":   {"n1/p0", true},
		"the folder, of the last run":            {"n1", false},
		"the logs, of the last run":              {"n1/p0", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr, old := newTrio(t, only(1)), t.TempDir()
			tr.start()
			tr.ready().apply(threePerMinute())
			if tc.restarted {
				tr.stop("n1")
				copyTree(t, filepath.Join(tr.dir, tc.what), filepath.Join(old, tc.what))
				tr.start("n1")
				tr.ready()
			} else {
				copyTree(t, filepath.Join(tr.dir, tc.what), filepath.Join(old, tc.what))
			}
			tr.everywhere()
			tr.isolate("n3")
			tr.until("another leader than n3", func() bool {
				now := tr.node("n1").leaders()[0]
				return now == "n1" || now == "n2"
			})
			tr.want("u42", fourth[:3]...)
			for _, n := range tr.names {
				tr.stop(n)
			}
			tr.heal()
			if err := os.RemoveAll(filepath.Join(tr.dir, tc.what)); err != nil {
				t.Fatal(err)
			}
			copyTree(t, filepath.Join(old, tc.what), filepath.Join(tr.dir, tc.what))

			tr.start("n1", "n3") // n2, which knows best, is away
			tr.until("n1 stays out", func() bool {
				state, _ := tr.node("n1").State()
				return state == "awaiting replacement"
			})
			for range 10 {
				for _, m := range tr.running() {
					if o := m.ask(t, "u42"); o.Result <= partition.UnknownDomain {
						t.Fatalf("%s answers with %d", m.ID(), o.Result)
					}
				}
			}
			tr.start("n2")
			tr.want("u42", partition.Denied)
		})
	}
}

// A node that has refused a disk has refused it for good: the disk's next start has a number that nobody has heard of.
// What is noted is on disk, so that neither a kill nor a loss of power of the one who noted it lets the copy in.
func TestARefusedCopyDoesNotGetInByTryingAgain(t *testing.T) {
	t.Parallel()
	tr, old := newTrio(t, only(1)), t.TempDir()
	tr.start()
	tr.ready().apply(threePerMinute())
	tr.everywhere()
	copyTree(t, filepath.Join(tr.dir, "n1"), filepath.Join(old, "n1"))
	tr.isolate("n3")
	tr.until("another leader than n3", func() bool {
		now := tr.node("n1").leaders()[0]
		return now == "n1" || now == "n2"
	})
	tr.want("u42", fourth[:3]...)
	tr.until("n3 to have noted how far n1 has come", func() bool {
		b, err := os.ReadFile(filepath.Join(tr.dir, "n3", "starts.json"))
		before, err2 := os.ReadFile(filepath.Join(old, "n1", "starts.json"))
		return err == nil && err2 == nil && string(b) != string(before) && strings.Count(string(b), tr.node("n1").ID()) > 0
	})
	for _, n := range tr.names {
		tr.stop(n)
	}
	tr.heal()
	if err := os.RemoveAll(filepath.Join(tr.dir, "n1")); err != nil {
		t.Fatal(err)
	}
	copyTree(t, filepath.Join(old, "n1"), filepath.Join(tr.dir, "n1"))
	tr.start("n3")
	for try := range 3 {
		tr.start("n1")
		tr.until("n1 stays out", func() bool {
			state, _ := tr.node("n1").State()
			return state == "awaiting replacement"
		})
		if o := tr.node("n3").ask(t, "u42"); o.Result <= partition.UnknownDomain {
			t.Fatalf("try %d: result %d", try, o.Result)
		}
		tr.stop("n1")
	}
	tr.stop("n3")
	tr.start("n1") // nobody is there to refuse it now
	tr.until("n1 stays out by itself", func() bool {
		state, detail := tr.node("n1").State()
		if state == "starting" && strings.Contains(detail, "majority") {
			t.Fatal("n1 has forgotten that it was refused")
		}
		return state == "awaiting replacement"
	})
	tr.start("n2", "n3")
	tr.want("u42", partition.Denied)
}

// A leader may count for a lease on what a replica answered before it stopped. Until that has ended the replica votes
// for nobody.
func TestAReplicaThatRestartsRunsOnceNoLeaseCountsOnIt(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, only(1), func(tr *trio) { tr.timing.Election = 2 * time.Second })
	tr.start()
	tr.ready().apply(threePerMinute())
	tr.stop("n1")
	tr.start("n1")
	tr.until("n1 waits", func() bool {
		state, detail := tr.node("n1").State()
		if state == "up" {
			t.Fatal("n1 didn't wait")
		}
		return strings.Contains(detail, "counts on what it answered")
	})
	tr.want("u1", fourth...)
	tr.until("n1 runs", func() bool {
		state, _ := tr.node("n1").State()
		return state == "up"
	})
}

// A leader's lease goes by its own election timeout and ends before that of the voters, if it is the same: a node with
// another one doesn't run beside them, and says why.
func TestANodeWithAnotherElectionTimeoutDoesNotRun(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, only(1))
	tr.start()
	tr.ready().apply(threePerMinute())
	tr.stop("n3")
	election := tr.timing.Election
	tr.timing.Election = 10 * election
	tr.start("n3")
	tr.until("n3 says why it waits", func() bool {
		state, detail := tr.node("n3").State()
		return state == "starting" && strings.Contains(detail, "the election timeout is not that of the other nodes")
	})
	tr.want("u1", fourth...)
	tr.stop("n3")
	tr.timing.Election = election
	tr.start("n3")
	tr.until("n3 runs", func() bool { state, _ := tr.node("n3").State(); return state == "up" })
}

// A disk that isn't the cluster's notes nobody's start: what it would note nobody could tell later. And others hear
// that it stays out.
func TestADiskThatStaysOutCountsForNobody(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, only(1))
	tr.start()
	tr.ready().apply(threePerMinute())
	tr.want("u1", fourth...)
	for _, name := range tr.names {
		tr.stop(name)
	}
	if err := os.RemoveAll(filepath.Join(tr.dir, "n3")); err != nil {
		t.Fatal(err)
	}
	tr.start("n1", "n3") // n2 is away
	tr.until("n1 hears that n3 stays out", func() bool {
		for _, s := range tr.node("n1").Status().GetNodes() {
			if s.GetName() == "n3" {
				return s.GetState() == "awaiting replacement"
			}
		}
		return false
	})
	for range 20 {
		if state, detail := tr.node("n1").State(); state != "starting" {
			t.Fatalf("n1 is %s: %s; one disk isn't a majority of three", state, detail)
		}
		<-time.After(20 * time.Millisecond)
	}
	tr.start("n2")
	tr.want("u1", partition.Denied)
}

// A log that can't be read, or that is lost, costs one replica; the others go on, and so do the node's others.
func TestADamagedLogStaysOutAlone(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"not a log":  func(path string) error { return os.WriteFile(path, []byte("not a log at all"), 0o600) },
		"lost":       os.Remove,
		"emptied":    func(path string) error { return os.Truncate(path, 0) },
		"no replica": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := newTrio(t)
			tr.start()
			tr.ready().apply(threePerMinute())
			tr.want("u1", fourth...)
			tr.stop("n2")
			if err := spoil(filepath.Join(tr.dir, "n2", "p1", "raft.db")); err != nil {
				t.Fatal(err)
			}
			tr.start("n2")
			tr.until("the replica of partition 1 stays out", func() bool {
				state, detail := tr.node("n2").State()
				return state == "awaiting replacement" && strings.Contains(detail, "[1]")
			})
			tr.want("u1", partition.Denied)
			tr.want("u2", fourth...)
			for _, p := range tr.node("n2").Status().GetPartitions() {
				for _, r := range p.GetReplicas() {
					if out := r.GetState() == "awaiting replacement"; out != (r.GetNode() == "n2" && r.GetPartition() == 1) {
						t.Errorf("partition %d: %s is %s", r.GetPartition(), r.GetNode(), r.GetState())
					}
				}
			}
		})
	}
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
