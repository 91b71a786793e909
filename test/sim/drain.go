package sim

import (
	"reflect"
	"unsafe"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/partition"
)

// drain answers what a Raft that has ended left unanswered: requests that its main loop or its state machine had in a
// channel when they ended. Real ones are ended with their process; here goroutines would wait for them for ever, which
// virtual time doesn't allow. It reaches into the library, because nothing else can.
func drain(g *partition.Group) {
	r := inside(reflect.ValueOf(g).Elem(), "raft").Elem()
	transfers := inside(r, "leadershipTransferCh")
	for f, ok := transfers.TryRecv(); ok; f, ok = transfers.TryRecv() {
		answer(f)
	}
	applies := inside(r, "fsmMutateCh")
	for batch, ok := applies.TryRecv(); ok; batch, ok = applies.TryRecv() {
		if batch = batch.Elem(); batch.Kind() != reflect.Slice { // a restore, whose asker doesn't wait any more
			continue
		}
		for i := range batch.Len() {
			if f := inside(batch.Index(i).Elem(), "future"); !f.IsNil() {
				answer(f)
			}
		}
	}
}

// inside is a field that its package keeps to itself.
func inside(owner reflect.Value, field string) reflect.Value {
	f := owner.FieldByName(field)
	return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
}

// answer ends the wait for a future of the library, unless it has ended.
func answer(future reflect.Value) {
	inside(future.Elem(), "errCh").TrySend(reflect.ValueOf(raft.ErrRaftShutdown))
}
