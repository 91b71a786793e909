package node_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/node"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
)

// threePerMinute is a set with one policy: three per 60 s and principal.
func threePerMinute() policy.Set {
	return policy.Set{Policies: []policy.Policy{{
		Name: "conversions", Domain: "video", Key: []string{"principal"},
		Limits: []policy.Limit{{Name: "per-minute", Algorithm: limit.RollingWindow, Amount: 3, Window: 60e9}},
	}}}
}

func openCluster(t *testing.T, dir string, set policy.Set) *node.Cluster {
	t.Helper()
	level := slog.LevelError
	if testing.Verbose() {
		level = slog.LevelInfo
	}
	c, err := node.Open(node.Config{
		Dir: dir, Set: set, Registry: prometheus.NewRegistry(),
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
	})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

func ready(t *testing.T, c *node.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := c.Ready(ctx); err != nil {
		t.Fatalf("ready: %v", err)
	}
}

// ask sends one check and waits for its outcome.
func ask(t *testing.T, c *node.Cluster, principal string) partition.Outcome {
	t.Helper()
	d, err := keyspace.NewDescriptor([]keyspace.Entry{{Name: "principal", Value: principal}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan partition.Outcome, 1)
	call := &partition.Call{
		Request: partition.Request{Domain: "video", Descriptors: []keyspace.Descriptor{d}, Cost: 1, ID: newID(), Unfenced: true},
		Done:    func(c *partition.Call) { done <- c.Outcome },
	}
	c.Submit(call)
	select {
	case o := <-done:
		return o
	case <-time.After(20 * time.Second):
		t.Fatal("no answer within 20 s")
		panic("unreachable")
	}
}

func newID() (id fsm.ID) {
	_, _ = rand.Read(id[:])
	return id
}

func want(t *testing.T, c *node.Cluster, principal string, results ...partition.Result) {
	t.Helper()
	for i, r := range results {
		if o := ask(t, c, principal); o.Result != r {
			t.Fatalf("check %d of %s: result %d, want %d", i+1, principal, o.Result, r)
		}
	}
}

func TestThreeAreAllowedAndTheFourthIsDenied(t *testing.T) {
	c := openCluster(t, t.TempDir(), threePerMinute())
	ready(t, c)
	want(t, c, "u42", partition.Allowed, partition.Allowed, partition.Allowed, partition.Denied)
	want(t, c, "u43", partition.Allowed)
}

func TestUsageSurvivesAStop(t *testing.T) {
	dir := t.TempDir()
	c := openCluster(t, dir, threePerMinute())
	ready(t, c)
	want(t, c, "u42", partition.Allowed, partition.Allowed, partition.Allowed, partition.Denied)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c = openCluster(t, dir, threePerMinute())
	ready(t, c)
	want(t, c, "u42", partition.Denied)
}

func TestABlankReplicaStaysOutAndNothingIsForgotten(t *testing.T) {
	dir := t.TempDir()
	c := openCluster(t, dir, threePerMinute())
	ready(t, c)
	want(t, c, "u42", partition.Allowed, partition.Allowed, partition.Allowed)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for i, name := range node.Names() {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			break
		}
		c = openCluster(t, dir, threePerMinute())
		ready(t, c)
		want(t, c, "u42", partition.Denied)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c = openCluster(t, dir, threePerMinute())
	want(t, c, "u42", partition.NoQuorum)
	want(t, c, "u99", partition.NoQuorum)
}
