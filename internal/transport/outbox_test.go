package transport

import (
	"errors"
	"slices"
	"testing"
)

func parcelOf(group uint32, size int) *parcel {
	return &parcel{kind: kindRequest, group: group, id: 1, buffer: &buffer{make([]byte, size)}}
}

// drain returns the groups whose frames go out, in order.
func drain(o *outbox) (order []uint32) {
	for {
		f, _, _, ok := o.next()
		if !ok {
			return order
		}
		order = append(order, f.group)
	}
}

func TestGroupsTakeTurnsFrameByFrame(t *testing.T) {
	o := newOutbox(limits{8, 1 << 20, 1 << 30})
	for _, p := range []*parcel{
		parcelOf(1, 3*maxFragment), parcelOf(1, 5), // much to send
		parcelOf(2, 5), // a heartbeat that came later
		parcelOf(3, maxFragment+1),
	} {
		if err := o.push(p); err != nil {
			t.Fatal(err)
		}
	}
	o.signal(kindPong)
	if got := drain(o); !slices.Equal(got, []uint32{0, 1, 2, 3, 1, 3, 1, 1}) {
		t.Errorf("frames of groups %v", got)
	}
	if o.queued() != 0 || len(o.lanes) != 0 {
		t.Errorf("%d bytes left in %d lanes", o.queued(), len(o.lanes))
	}
}

func TestAFullGroupIsBusyAndTheOthersAreNot(t *testing.T) {
	o := newOutbox(limits{messages: 2, bytes: 100, total: 250})
	for _, tc := range []struct {
		group uint32
		size  int
		want  error
	}{
		{1, 200, nil}, // a single one always fits
		{1, 1, ErrBusy},
		{2, 10, nil}, {2, 10, nil}, {2, 10, ErrBusy}, // two messages
		{3, 20, nil},
		{4, 20, ErrBusy}, // all together
	} {
		if err := o.push(parcelOf(tc.group, tc.size)); !errors.Is(err, tc.want) {
			t.Errorf("group %d, %d bytes: %v", tc.group, tc.size, err)
		}
	}
}

func TestADroppedMessageIsNotSentUnlessItHasBegun(t *testing.T) {
	o := newOutbox(limits{8, 1 << 20, 1 << 20})
	begun, waiting, other := parcelOf(1, 2*maxFragment), parcelOf(1, 5), parcelOf(2, 5)
	for _, p := range []*parcel{begun, waiting, other} {
		if err := o.push(p); err != nil {
			t.Fatal(err)
		}
	}
	if f, _, _, _ := o.next(); f.group != 1 || f.rest != maxFragment {
		t.Fatalf("%+v", f)
	}
	for _, p := range []*parcel{begun, waiting, other, other} {
		o.drop(p)
	}
	if got := drain(o); !slices.Equal(got, []uint32{1}) {
		t.Errorf("frames of groups %v", got)
	}
	if o.queued() != 0 || len(o.lanes) != 0 {
		t.Errorf("%d bytes left in %d lanes", o.queued(), len(o.lanes))
	}
	o.drop(begun) // long gone
	if err := o.push(parcelOf(2, 5)); err != nil {
		t.Error(err)
	}
	if got := drain(o); !slices.Equal(got, []uint32{2}) {
		t.Errorf("after a drop, frames of groups %v", got)
	}
}
