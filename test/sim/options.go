package sim

import "time"

// Options say which run it is.
type Options struct {
	Seed uint64
	// Power has power fail often, and little else go wrong: each loss hits all machines at once.
	Power bool
	// Leases has leaders be replaced while they believe that they lead, and little else go wrong.
	Leases bool
	// Trace keeps what happened, line by line.
	Trace bool
	// Breaks are what is wrong with this world.
	Breaks Breaks
}

// Breaks are what no product could bear. The zero value is a world that keeps its promises.
type Breaks struct {
	// IgnoreSync: disks say that they have synced, and haven't: what a loss of power leaves is full of holes.
	IgnoreSync bool
	// LoseNewest: they haven't, and what a loss of power leaves looks well: only the newest that was written is gone.
	LoseNewest bool
	// FastClock: all clocks run 1% fast.
	FastClock bool
	// OldLease: the transport counts answers from when they came, not from when their questions were sent.
	OldLease bool
	// OldSnapshot: the snapshot before stands in for the newest, so what was recorded in between is forgotten.
	OldSnapshot bool
	// FreshFence: clients send what they repeat with the newest time that they know, as if it were new.
	FreshFence bool
	// Forged: some requests are answered as if they had been heard, and never arrive.
	Forged bool
}

// manners are how rough the world is: events in a million, and times between troubles.
type manners struct {
	lost, doubled, late int // of messages
	torn                int // of snapshots that are sent
	every               time.Duration
	length              time.Duration // of the trouble
	think               time.Duration // of a client between two questions, at most
	sync                time.Duration // of a disk, at most
	logBytes            uint64
	horizon             time.Duration
}

func mannersOf(o Options) manners {
	s := draw(o.Seed, "manners")
	m := manners{
		lost: 1000 * s.below(12), doubled: 1000 * s.below(25), late: 1000 * s.below(10), torn: 150_000,
		every: s.span(200*time.Millisecond, 900*time.Millisecond), length: trouble, think: 40 * time.Millisecond,
		logBytes: uint64(4<<10 + s.below(12<<10)), horizon: 20 * time.Second, sync: 1200 * time.Microsecond,
	}
	if s.below(2) == 0 {
		m.horizon = 4 * time.Second
	}
	if o.Leases {
		m.lost, m.late, m.doubled = 0, 0, 0
		m.every, m.think = s.span(1300*time.Millisecond, 1700*time.Millisecond), 16*time.Millisecond
	}
	if o.Power {
		m.lost, m.late = 0, 0
		m.every, m.think, m.sync = s.span(1000*time.Millisecond, 1600*time.Millisecond), 12*time.Millisecond, 5*time.Millisecond
	}
	return m
}

// The times of a run: the trouble, then the calm in which everything must come back.
const (
	trouble  = 6 * time.Second
	election = 300 * time.Millisecond
	stuck    = 800 * time.Millisecond // a call of the store that hangs so long ends its process
)
