package node_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

var errHeardEnough = errors.New("heard enough")

// A watch is never silent for long: whoever hears nothing takes its node for frozen and watches another one. The first
// message has the cluster all the same, and those without any news come behind.
func TestAWatchTellsThatThereIsNothingToTell(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, only(1))
	tr.start()
	tr.ready()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	messages, empty := 0, 0
	err := tr.node("n1").Watch(ctx, false, func(m *quotav1.WatchResponse) error {
		if messages++; messages == 1 && (m.GetCluster() == nil || len(m.GetPartitions()) != 1) {
			t.Errorf("the first message is %v", m)
		}
		if proto.Size(m) == 0 {
			empty++
		}
		if empty == 3 {
			return errHeardEnough
		}
		return nil
	})
	if !errors.Is(err, errHeardEnough) {
		t.Errorf("%d of %d messages without news, and then %v", empty, messages, err)
	}
}

// A node that hears nobody doesn't know whether there is news, and leaves its watchers to others.
func TestANodeThatHearsNobodySaysNotThatThereIsNothingToTell(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, only(1))
	tr.start()
	tr.ready()
	ctx, cancel := context.WithCancel(t.Context())
	var last atomic.Int64 // when it said so; unix ns
	var watching sync.WaitGroup
	watching.Go(func() {
		_ = tr.node("n1").Watch(ctx, false, func(m *quotav1.WatchResponse) error {
			if proto.Size(m) == 0 {
				last.Store(time.Now().UnixNano())
			}
			return nil
		})
	})
	defer watching.Wait()
	defer cancel()
	tr.until("nothing to tell", func() bool { return last.Load() > 0 })
	tr.stop("n2")
	tr.stop("n3")
	tr.until("silence", func() bool { return time.Now().UnixNano()-last.Load() > int64(5*time.Second) })
	silent := last.Load()
	tr.start("n2", "n3")
	tr.until("nothing to tell again", func() bool { return last.Load() > silent })
}
