//go:build amd64 || arm64

package exact

import (
	"encoding/binary"
	"errors"
	"math/bits"
	randv2 "math/rand/v2"
	"reflect"
	"runtime"
	"runtime/debug"
	"unsafe"
)

var (
	// ErrUnknownRuntime says that this version of Go keeps its generators otherwise.
	ErrUnknownRuntime = errors.New("the runtime's generators are not where they were")
	// ErrManyThreads says that goroutines ran on another thread than the one that was set.
	ErrManyThreads = errors.New("goroutines ran on several threads")
)

// thread is the runtime's record of the thread that runs the caller.
func thread() unsafe.Pointer

//go:linkname pin runtime.procPin
func pin() int

//go:linkname unpin runtime.procUnpin
func unpin()

//go:linkname cheaprand runtime.cheaprand
func cheaprand() uint32

// words is how much of the record is searched, in words of 8 bytes: it is about 2 KiB long.
const words = 400

// What the record holds is the thread's own, and only one runs goroutines: the race detector, which would take two of
// them for two that meddle with it, doesn't look here (go:norace).

// layout is where in the record what is.
type layout struct{ cheap, chacha, preempt uintptr }

// The state of the generator that maps draw from: 32 words, a seed of 4 words, three numbers of 32 bits.
const (
	chachaIndex = 32*8 + 4*8
	chachaBytes = chachaIndex + 3*4
)

// Run is one run in a fixed order.
type Run struct {
	thread  unsafe.Pointer
	layout  layout
	percent int
	profile int
}

// Begin looks for what to set. The caller has set GOMAXPROCS to 1, and calls Seed where the run begins and End when
// it is over.
func Begin() (*Run, error) {
	r := &Run{percent: debug.SetGCPercent(-1), profile: runtime.MemProfileRate}
	runtime.MemProfileRate = 0 // draws after so many bytes
	runtime.GC()               // what was begun ends
	pin()
	r.thread = thread()
	found, ok := find(r.thread)
	unpin()
	if !ok {
		debug.SetGCPercent(r.percent)
		return nil, ErrUnknownRuntime
	}
	r.layout = found
	return r, nil
}

// Seed sets the thread as if the process had begun with that seed.
func (r *Run) Seed(seed uint64) {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	from := randv2.NewChaCha8(key)
	pin()
	defer unpin()
	r.thread = thread()
	set(r.thread, r.layout, seed, unsafe.Pointer(from))
	forget()
	r.Renew(seed)
}

// Renew sets anew what selects draw from. Done often, from what the run itself draws, it ends what an odd draw has
// changed that the runtime made for reasons of its own.
//
//go:norace
func (r *Run) Renew(seed uint64) {
	if r != nil {
		*(*uint64)(unsafe.Add(r.thread, r.layout.cheap)) = seed
	}
}

// Aside does something that the run must not depend on, such as keeping a trace of it.
//
//go:norace
func (r *Run) Aside(do func()) {
	if r == nil {
		do()
		return
	}
	cheap := (*uint64)(unsafe.Add(r.thread, r.layout.cheap))
	before := *cheap
	do()
	*cheap = before
}

// forget has the thread's cache of program counters hold only what follows from the seed: whenever a stack grows,
// what isn't in there is drawn for. It asks for many of which none is there.
func forget() {
	pc := reflect.ValueOf(look).Pointer()
	for i := range uintptr(1024) {
		runtime.FuncForPC(pc).FileLine(pc + i%200)
	}
}

// End lets the runtime do as it likes again. It says whether the run was exact.
//
//go:norace
func (r *Run) End() error {
	*(*string)(unsafe.Add(r.thread, r.layout.preempt)) = ""
	debug.SetGCPercent(r.percent)
	runtime.MemProfileRate = r.profile
	if thread() != r.thread {
		return ErrManyThreads
	}
	return nil
}

//go:nocheckptr
//go:norace
func set(m unsafe.Pointer, l layout, seed uint64, chacha unsafe.Pointer) {
	*(*uint64)(unsafe.Add(m, l.cheap)) = seed
	copy(unsafe.Slice((*byte)(unsafe.Add(m, l.chacha)), chachaBytes), unsafe.Slice((*byte)(chacha), chachaBytes))
	*(*string)(unsafe.Add(m, l.preempt)) = "exact"
}

//go:nocheckptr
//go:norace
func look(m unsafe.Pointer) (record [words]uint64) {
	for i := range record {
		record[i] = *(*uint64)(unsafe.Add(m, i*8))
	}
	return record
}

// find finds the fields by what changes them, each at one place only.
func find(m unsafe.Pointer) (l layout, ok bool) {
	before := look(m)
	drawn := cheaprand()
	after := look(m)
	cheap, n := only(func(i int) bool { return after[i]-before[i] == cheapStep && cheapOf(after[i]) == drawn })
	if n != 1 {
		return l, false
	}
	chacha, n := findChacha(m)
	if n != 1 {
		return l, false
	}
	preempt, n := findPreempt(m)
	return layout{cheap: cheap, chacha: chacha, preempt: preempt}, n == 1
}

// only is where the words are that fit, and how many do.
func only(fits func(i int) bool) (at uintptr, n int) {
	for i := range words {
		if fits(i) {
			at, n = uintptr(i)*8, n+1
		}
	}
	return at, n
}

const cheapStep = 0xa0761d6478bd642f

// cheapOf is what the cheap generator draws in that state (wyrand).
func cheapOf(state uint64) uint32 {
	hi, lo := bits.Mul64(state, state^0xe7037ed1a0b428db)
	return uint32(hi ^ lo)
}

// findChacha looks for the state whose word, at the place that its index has just left, was drawn.
func findChacha(m unsafe.Pointer) (at uintptr, n int) {
	drawn := randv2.Uint64()
	record := look(m)
	return only(func(i int) bool {
		place := i + chachaIndex/8
		if place+1 >= words {
			return false
		}
		index, filled := uint32(record[place]), uint32(record[place]>>32)
		return index >= 1 && index <= filled && (filled == 32 || filled == 28) && record[i+int(index)-1] == drawn
	})
}

// findPreempt looks for the number that pinning counts up: right before it is the string that says why the thread
// must not be preempted, and that is empty.
func findPreempt(m unsafe.Pointer) (at uintptr, n int) {
	before := look(m)
	pin()
	after := look(m)
	unpin()
	at, n = only(func(i int) bool {
		return i >= 2 && uint32(after[i]) == uint32(before[i])+1 && after[i]>>32 == before[i]>>32 && before[i-1] == 0 && before[i-2] == 0
	})
	return at - 16, n
}
