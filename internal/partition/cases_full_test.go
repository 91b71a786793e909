package partition_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/partition"
)

// DISK-04: disks fill up under load, one after another, then all of them, and have room again. Nothing is
// acknowledged that isn't on a majority's disks; a replica whose disk is full ends, and comes back by itself; in the
// end what is recorded is what was allowed.
func TestDISK04FullDisksLoseNoAllow(t *testing.T) {
	// The word lets a replica stop where it heard of it, as a process does that ends: Raft, going on, would panic.
	full := fmt.Errorf("%w: %s", syscall.ENOSPC, restartToDiscard)
	for _, files := range []bool{false, true} {
		inBubble(t, func(cl *cluster) {
			c := visit(cl)
			pass(time.Second)
			r := cl.leader()
			for _, filled := range [][]*replica{{cl.others(r)[0]}, {r}, cl.replicas} {
				for _, f := range filled {
					f.disk.fail(full)
				}
				allows := c.allows()
				ended := supervise(cl, 30*time.Second)
				if len(ended) < min(2, len(filled)) { // of all the third may have nothing to write
					t.Errorf("of %d full disks these ended a replica: %v", len(filled), ended)
				}
				for _, sound := range cl.replicas {
					if ended[sound.id] > 0 && !slices.Contains(filled, sound) {
						t.Errorf("%s has room and ended", sound.id)
					}
				}
				if got := c.allows() - allows; (got > 0) != (len(filled) == 1) {
					t.Errorf("%d allows while %d disks were full", got, len(filled))
				}
				for _, f := range filled {
					f.disk.broken.Store(nil)
				}
				supervise(cl, 5*time.Second)
			}
			c.disperse()
			c.reckon()
			cl.same()
		}, remembering, func(cl *cluster) { cl.files = files })
	}
}

// supervise starts processes anew that ended by themselves, and counts how often each did.
func supervise(cl *cluster, d time.Duration) map[string]int {
	ended := map[string]int{}
	for begun := cl.now(); cl.now()-begun < int64(d); pass(500 * time.Millisecond) {
		for _, r := range cl.replicas {
			if len(r.ends()) > 0 {
				ended[r.id]++
				r.stop()
				r.start()
			}
		}
	}
	return ended
}

// remembering keeps ids for as long as a test lasts, so that all that is unknown can be found out in the end.
func remembering(cl *cluster) { cl.settings.Horizon = 3600e9 }

// visitors ask whoever leads, ten times a second for each of five keys, and wait for nobody.
type visitors struct {
	cl   *cluster
	stop chan struct{}
	wg   sync.WaitGroup
	mu   sync.Mutex
	all  []*sent
}

func visit(cl *cluster) *visitors {
	v := &visitors{cl: cl, stop: make(chan struct{})}
	v.wg.Go(func() {
		for {
			select {
			case <-v.stop:
				return
			case <-time.After(100 * time.Millisecond):
				v.ask()
			}
		}
	})
	return v
}

func (v *visitors) ask() {
	r := leading(v.cl.replicas)
	if r == nil {
		return
	}
	g := r.group.Load()
	if g == nil { // it has just stopped
		return
	}
	var qs []partition.Request
	for _, key := range fiveKeys {
		q := v.cl.request("counted", key)
		q.Unfenced, q.Fence = false, g.Status().Now
		qs = append(qs, q)
	}
	all := r.submit(qs...)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all = append(v.all, all...)
}

var fiveKeys = []string{"a", "b", "c", "d", "e"}

func (v *visitors) disperse() {
	close(v.stop)
	v.wg.Wait()
}

// allows counts those that they have heard.
func (v *visitors) allows() (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range v.all {
		select {
		case <-s.done:
			if s.Result == partition.Allowed {
				n++
			}
		default:
		}
	}
	return n
}

// reckon finds out what became of outcomes that are unknown, and compares what was allowed with what is recorded
// and with what fits.
func (v *visitors) reckon() {
	t, r, at, unknown := v.cl.t, v.cl.leader(), map[string][]int64{}, 0
	for _, s := range v.all {
		key, _ := s.Descriptors[0].Get("principal")
		o := s.wait()
		if o.Result == partition.Unknown {
			unknown++
			o = r.ask(s.Request)
		}
		if o.Result == partition.Allowed {
			at[key] = append(at[key], o.Time)
		}
	}
	for _, key := range fiveKeys {
		if used := r.used("counted", key, 1); used != uint64(len(at[key])) {
			t.Errorf("%s: %d ids are allowed and %d events are recorded", key, len(at[key]), used)
		}
		fits(t, at[key])
	}
	t.Logf("%d checks, %d of an outcome that was unknown, %d allows of one key", len(v.all), unknown, len(at["a"]))
}

// DISK-05: a replica starts from a full disk as far as it needs no room, says what it lacks where it does, and has
// lost nothing once there is some.
func TestDISK05AFullDiskIsReadAndTold(t *testing.T) {
	b, f := faultyBench(t)
	b.must(b.Log.StoreLogs([]*raft.Log{entry(1, 1, 1), entry(2, 1, 2), entry(3, 1, 3)}))
	_, err := b.BeginStart()
	b.must(err)
	f.before = func(call string, _, _ uint64) error {
		if call == "StoreLogs" || call == "Set" || call == "DeleteRange" {
			return syscall.ENOSPC
		}
		return nil
	}
	b.reopen()
	if _, err := b.BeginStart(); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), b.folder) || len(b.fatals()) != 1 {
		t.Errorf("begin a start: %v, fatal heard %v", err, b.fatals())
	}
	f.before = nil
	b.reopen()
	start, err := b.BeginStart()
	if want := (partition.Start{Number: 2, Term: 1, Index: 3}); err != nil || start != want {
		t.Errorf("with room again: %+v, %v, want %+v", start, err, want)
	}
	b.must(b.Log.StoreLog(entry(4, 1, 4)))
}

// DISK-16: slow disks, up to where they are slower than an election, cost time and answers, and no window more than
// its limit. What a good network disk does in its worst moments, 200 ms, deposes nobody.
func TestDISK16SlowDisksCostTimeAndNothingElse(t *testing.T) {
	for _, took := range []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second, 3 * time.Second} {
		for _, all := range []bool{false, true} {
			inBubble(t, func(cl *cluster) {
				r := cl.leader()
				slow := cl.replicas
				if !all {
					slow = []*replica{r}
				}
				for _, s := range slow {
					s.disk.slow(took)
				}
				term := r.group.Load().Status().Term
				before := gathered(t, r.registry)
				c := visit(cl)
				pass(30 * time.Second)
				if now := r.group.Load().Status().Term; took <= 200*time.Millisecond && (now != term || c.allows() < 3*5*8) {
					t.Errorf("%v: from term %d to %d, %d allows", took, term, now, c.allows())
				}
				c.disperse()
				after := gathered(t, r.registry)
				of := func(key string) float64 { key = "quorate_log_append_seconds " + key; return after[key] - before[key] }
				if mean := of("sum") / max(1, of("count")); mean < 0.99*took.Seconds() || mean > 1.1*took.Seconds() {
					t.Errorf("%v: metrics show appends of %v s", took, mean)
				}
				for _, s := range slow {
					s.disk.slow(0)
				}
				pass(10 * time.Second)
				c.reckon()
				cl.same()
			}, remembering)
		}
	}
}
