package transport_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/transport"
)

// keep reads a whole snapshot, as Raft does.
func keep(rpc raft.RPC) (any, error) {
	n, err := io.Copy(io.Discard, rpc.Reader)
	return &raft.InstallSnapshotResponse{Success: n == rpc.Command.(*raft.InstallSnapshotRequest).Size}, err
}

// follow answers whatever a leader sends.
func follow(rpc raft.RPC) (any, error) {
	if rpc.Reader != nil {
		return keep(rpc)
	}
	return success(rpc)
}

func TestASnapshotIsExactlyAsLongAsAnnounced(t *testing.T) {
	for name, size := range map[string]int{"shorter": 11, "longer": 9, "longer than nothing": 0} {
		synctest.Test(t, func(t *testing.T) {
			p := link(t)
			seen := make(chan error, 1)
			answer(t, p.r2, func(rpc raft.RPC) (any, error) {
				_, err := io.ReadAll(rpc.Reader)
				seen <- err
				return nil, err
			})
			if resp, err := install(p.r1, address("n2"), size, strings.NewReader("ten bytes.")); err == nil {
				t.Errorf("%s: %+v", name, resp)
			}
			synctest.Wait()
			select { // it may have been over before Raft took it
			case err := <-seen:
				if err == nil {
					t.Errorf("%s: the peer took it for whole", name)
				}
			default:
			}
		})
	}
}

// The link is cut in the middle: the sender fails at once, and so do the reads of the peer.
func TestASnapshotThatIsCutOffFailsAtBothEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := link(t)
		seen := make(chan error, 1)
		answer(t, p.r2, func(rpc raft.RPC) (any, error) {
			if _, err := io.ReadFull(rpc.Reader, make([]byte, 1<<20)); err != nil {
				t.Error(err)
			}
			p.net.cut("n2")
			_, err := io.Copy(io.Discard, rpc.Reader)
			seen <- err
			return nil, err
		})
		begun := time.Now()
		if _, err := install(p.r1, address("n2"), 1<<30, &endless{}); !errors.Is(err, transport.ErrUnreachable) {
			t.Errorf("got %v", err)
		}
		if err := <-seen; err == nil || time.Since(begun) != 0 {
			t.Errorf("the peer: %v after %v", err, time.Since(begun))
		}
	})
}

// A slow peer may take as long as it likes, as long as it moves.
func TestASnapshotTakesItsTimeAsLongAsItMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := link(t)
		answer(t, p.r2, func(rpc raft.RPC) (any, error) {
			b := make([]byte, 64<<10)
			for {
				time.Sleep(3 * time.Second) // of the bubble
				if n, err := io.ReadFull(rpc.Reader, b); n == 0 {
					break
				} else if err != nil {
					return nil, err
				}
			}
			time.Sleep(15 * time.Second) // the restore
			return &raft.InstallSnapshotResponse{Success: true}, nil
		})
		if resp, err := install(p.r1, address("n2"), 1<<20, bytes.NewReader(make([]byte, 1<<20))); err != nil || !resp.Success {
			t.Errorf("%+v, %v", resp, err)
		}
	})
}

func TestASnapshotThatDoesNotMoveFails(t *testing.T) {
	for _, tc := range []struct {
		name string
		peer func(p *linked, rpc raft.RPC)
		size int
		want error
		max  time.Duration
	}{
		{"the peer stops reading", func(_ *linked, rpc raft.RPC) { time.Sleep(time.Hour) }, 4 << 20, transport.ErrDeadline, 11 * time.Second},
		{"the restore never ends", func(_ *linked, rpc raft.RPC) {
			_, _ = io.Copy(io.Discard, rpc.Reader)
			time.Sleep(time.Hour)
		}, 4 << 20, transport.ErrDeadline, 34 * time.Second},
		{"the peer is gone without a word", func(p *linked, rpc raft.RPC) {
			_, _ = io.Copy(io.Discard, rpc.Reader)
			p.net.mute("n2", "n1")
			time.Sleep(time.Hour)
		}, 4 << 20, transport.ErrDeadline, 6 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := link(t)
				answer(t, p.r2, func(rpc raft.RPC) (any, error) { tc.peer(p, rpc); return nil, nil })
				begun := time.Now()
				_, err := install(p.r1, address("n2"), tc.size, bytes.NewReader(make([]byte, tc.size)))
				if !errors.Is(err, tc.want) || time.Since(begun) > tc.max {
					t.Errorf("%v after %v", err, time.Since(begun))
				}
			})
		})
	}
	t.Run("the peer's main loop never takes it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := link(t)
			begun := time.Now()
			if _, err := install(p.r1, address("n2"), 0, strings.NewReader("")); !errors.Is(err, transport.ErrBusy) || time.Since(begun) != 10*time.Second {
				t.Errorf("%v after %v", err, time.Since(begun))
			}
		})
	})
}

// Snapshots and requests, and snapshots of two groups, don't wait for each other.
func TestASlowSnapshotHoldsUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := link(t)
		other1, other2 := replica(t, p.l1, "n1", 2), replica(t, p.l2, "n2", 2)
		answer(t, p.r2, func(raft.RPC) (any, error) { time.Sleep(8 * time.Second); return nil, errors.New("no") })
		answer(t, other2, follow)
		var slow sync.WaitGroup
		slow.Go(func() {
			if _, err := install(p.r1, address("n2"), 1<<30, io.LimitReader(&endless{}, 1<<30)); err == nil || !strings.HasSuffix(err.Error(), "no") {
				t.Errorf("the slow one: %v", err)
			}
		})
		time.Sleep(time.Second)
		begun := time.Now()
		if resp, err := install(other1, address("n2"), 1<<20, bytes.NewReader(make([]byte, 1<<20))); err != nil || !resp.Success {
			t.Errorf("the other group's: %+v, %v", resp, err)
		}
		if err := heartbeat(other1, address("n2"), 1); err != nil || time.Since(begun) != 0 {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		slow.Wait()
	})
}

// A sender that has given up sends again while Raft still reads the one before: that one fails, so that
// the new one gets its turn.
func TestANewSnapshotReplacesTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := link(t)
		var firsts []error
		answer(t, p.r2, func(rpc raft.RPC) (any, error) {
			resp, err := keep(rpc)
			firsts = append(firsts, err)
			return resp, err
		})
		var old sync.WaitGroup
		stalled, release := io.Pipe()
		old.Go(func() {
			if _, err := install(p.r1, address("n2"), 10, stalled); err == nil {
				t.Error("the one before succeeded")
			}
		})
		time.Sleep(time.Second) // shorter than what counts as a stall
		begun := time.Now()
		if resp, err := install(p.r1, address("n2"), 1, strings.NewReader("x")); err != nil || !resp.Success {
			t.Errorf("%+v, %v", resp, err)
		}
		if d := time.Since(begun); d != 0 {
			t.Errorf("it waited for %v", d)
		}
		release.Close()
		old.Wait()
		if len(firsts) != 2 || firsts[0] == nil || firsts[1] != nil {
			t.Errorf("Raft saw %v", firsts)
		}
	})
}

func TestClosingAReplicaEndsItsSnapshots(t *testing.T) {
	for _, which := range []string{"the sender", "the peer"} {
		synctest.Test(t, func(t *testing.T) {
			p := link(t)
			seen := make(chan error, 1)
			answer(t, p.r2, func(rpc raft.RPC) (any, error) {
				_, err := io.Copy(io.Discard, rpc.Reader)
				seen <- err
				return nil, err
			})
			done := make(chan error, 1)
			stalled, release := io.Pipe()
			go func() {
				_, err := install(p.r1, address("n2"), 2<<20, io.MultiReader(io.LimitReader(&endless{}, 1<<20), stalled))
				done <- err
			}()
			time.Sleep(time.Second)
			begun := time.Now()
			if which == "the sender" {
				p.r1.Close()
			} else {
				p.r2.Close()
			}
			if err := <-seen; err == nil || time.Since(begun) != 0 {
				t.Errorf("%s: Raft saw %v after %v", which, err, time.Since(begun))
			}
			go func() { _, _ = io.Copy(release, &endless{}) }() // the source moves again
			if err := <-done; !errors.Is(err, transport.ErrClosed) || time.Since(begun) != 0 {
				t.Errorf("%s: %v after %v", which, err, time.Since(begun))
			}
			stalled.Close()
		})
	}
}
