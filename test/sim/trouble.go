package sim

import (
	"context"
	"errors"
	"time"

	"github.com/quorate/quorate/internal/partition"
)

// bother has things go wrong, one after another and several at once, until the trouble is over.
func (w *world) bother() {
	end := make(chan struct{})
	stop := time.AfterFunc(w.manners.length, func() { close(end) })
	defer stop.Stop()
	for n := uint64(0); ; n++ {
		s := w.draw("trouble", n)
		if !sleep(s.span(w.manners.every/2, w.manners.every*3/2), end) {
			return
		}
		w.happen(s)
	}
}

// misfortune is one kind of trouble, and how often it comes among the others.
type misfortune struct {
	weight int
	name   string
	do     func(w *world, s *stream)
}

func (w *world) misfortunes() []misfortune {
	power := misfortune{4, "power losses", (*world).losePower}
	kill := misfortune{8, "kills", func(w *world, s *stream) { w.strike(s, (*process).kill) }}
	edit := misfortune{8, "policy edits", (*world).edit}
	late, back := misfortune{8, "leaders that hear late", (*world).hearLate}, misfortune{8, "voters that come back", (*world).comeBack}
	if w.o.Leases {
		return []misfortune{late, back}
	}
	if w.o.Power {
		return []misfortune{{30, power.name, power.do}, kill, edit, {6, "slow disks", (*world).slowDisk}}
	}
	return []misfortune{
		power, kill, edit,
		{10, "one-way cuts", (*world).cutOneWay},
		{8, "machines cut off", (*world).cutOff},
		{8, "links that crawl", (*world).crawl},
		{6, "links that lose", (*world).lossy},
		{8, "slow disks", (*world).slowDisk},
		{3, "disks that hang", (*world).hangDisk},
		{3, "full disks", (*world).fillDisk},
		{6, "stops", func(w *world, s *stream) { w.strike(s, (*process).stop) }},
		{8, "transfers", (*world).transfer},
		{14, "clock faults", (*world).clockFault},
		late, back,
	}
}

func (w *world) happen(s *stream) {
	all := w.misfortunes()
	total := 0
	for _, m := range all {
		total += m.weight
	}
	n := s.below(total)
	for _, m := range all {
		if n -= m.weight; n < 0 {
			w.mark("trouble: %s", m.name)
			w.count(m.name)
			m.do(w, s)
			return
		}
	}
}

// later undoes a trouble after a while, at the latest when the calm begins.
func (w *world) later(s *stream, low, high time.Duration, undo func()) {
	d := s.span(low, high)
	w.undoing.Go(func() {
		sleep(d, w.ending)
		undo()
	})
}

func (w *world) any(s *stream) *machine { return w.machines[s.below(len(w.machines))] }

// either is whoever leads, or any machine.
func (w *world) either(s *stream) *machine {
	m, lead := w.any(s), w.leader()
	if lead != nil && s.below(3) > 0 {
		return lead
	}
	return m
}

// others are the machines but m.
func (w *world) others(m *machine) (rest []*machine) {
	for _, o := range w.machines {
		if o != m {
			rest = append(rest, o)
		}
	}
	return rest
}

// losePower ends all processes at one moment, and takes from their disks what wasn't synced.
func (w *world) losePower(s *stream) {
	n := s.next()
	for _, m := range w.machines {
		if p := m.process(); p != nil {
			p.crash("power loss")
		}
	}
	for _, m := range w.machines {
		m.disk.losePower(n)
	}
}

func (p *process) kill() { p.crash("killed") }

func (w *world) strike(s *stream, how func(*process)) {
	if p := w.either(s).process(); p != nil {
		how(p)
	}
}

func (w *world) cutOneWay(s *stream) {
	m := w.either(s)
	o := w.others(m)[s.below(2)]
	from, to := m.id, o.id
	if s.below(2) == 0 {
		from, to = to, from
	}
	w.cut(from, to, 1)
	w.later(s, 100*time.Millisecond, 1500*time.Millisecond, func() { w.cut(from, to, -1) })
}

func (w *world) cut(from, to string, by int) {
	w.net.change(from, to, func(l *link) { l.cut += by })
}

func (w *world) cutOff(s *stream) {
	m := w.either(s)
	all := func(by int) {
		for _, o := range w.others(m) {
			w.cut(m.id, o.id, by)
			w.cut(o.id, m.id, by)
		}
	}
	all(1)
	w.later(s, 100*time.Millisecond, 1500*time.Millisecond, func() { all(-1) })
}

// crawl slows the answers to one machine, or what it sends.
func (w *world) crawl(s *stream) {
	m := w.either(s)
	slow, answers := s.span(30*time.Millisecond, 700*time.Millisecond), s.below(3) > 0
	all := func(by time.Duration) {
		for _, o := range w.others(m) {
			from, to := m.id, o.id
			if answers {
				from, to = to, from
			}
			w.net.change(from, to, func(l *link) { l.slow = by })
		}
	}
	all(slow)
	w.later(s, 200*time.Millisecond, 1500*time.Millisecond, func() { all(0) })
}

func (w *world) lossy(s *stream) {
	m := w.any(s)
	o, share := w.others(m)[s.below(2)], 100_000+s.below(500_000)
	rough := func(ppm int) {
		w.net.change(m.id, o.id, func(l *link) { l.rough = ppm })
		w.net.change(o.id, m.id, func(l *link) { l.rough = ppm })
	}
	rough(share)
	w.later(s, 200*time.Millisecond, 1500*time.Millisecond, func() { rough(0) })
}

// hearLate has a leader hear late of what it sent while it was still heard, and be heard no more: it believes for
// longest that it leads, while the others elect. One of its clocks stands still, so that what it knows of its keys is
// what it was, while the other leader admits.
func (w *world) hearLate(s *stream) {
	m := w.leader()
	if m == nil {
		return
	}
	first, then := s.span(40*time.Millisecond, 80*time.Millisecond), s.span(700*time.Millisecond, 900*time.Millisecond)
	late := &ladder{}
	for _, o := range w.others(m) {
		w.net.change(o.id, m.id, func(l *link) { l.late = late })
	}
	w.undoing.Go(func() {
		sleep(first, w.ending)
		m.standStill(true)
		for _, o := range w.others(m) {
			w.cut(m.id, o.id, 1)
		}
		sleep(then, w.ending)
		for _, o := range w.others(m) {
			w.cut(m.id, o.id, -1)
			w.net.change(o.id, m.id, func(l *link) { l.late = nil })
		}
		m.standStill(false)
	})
}

func (m *machine) standStill(still bool) {
	m.source.change(func(_, raw *face) { raw.still = still })
}

// comeBack has one of those whom a leader reckons with die, come back at once, and hear nothing more of that leader,
// while the third, who doesn't hear it either, stands for election.
func (w *world) comeBack(s *stream) {
	m := w.leader()
	if m == nil {
		return
	}
	others := w.others(m)
	n := s.below(2)
	voter, candidate := others[n], others[1-n]
	first, then := s.span(200*time.Millisecond, 700*time.Millisecond), s.span(200*time.Millisecond, 500*time.Millisecond)
	w.cut(m.id, candidate.id, 1)
	w.undoing.Go(func() {
		if sleep(first, w.ending) {
			m.standStill(true)
			voter.hurry.Store(true)
			if p := voter.process(); p != nil {
				p.kill()
			}
			w.cut(m.id, voter.id, 1)
			sleep(then, w.ending)
			w.cut(m.id, voter.id, -1)
			m.standStill(false)
		}
		w.cut(m.id, candidate.id, -1)
	})
}

func (d *disk) change(do func(*disk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	do(d)
}

func (w *world) slowDisk(s *stream) {
	m, slow := w.either(s), s.span(2*time.Millisecond, 60*time.Millisecond)
	m.disk.change(func(d *disk) { d.slow = slow })
	w.later(s, 200*time.Millisecond, 2*time.Second, func() { m.disk.change(func(d *disk) { d.slow = 0 }) })
}

// hangDisk has every write hang until its process has ended over it.
func (w *world) hangDisk(s *stream) {
	m := w.either(s)
	m.disk.change(func(d *disk) { d.hangs = true })
	w.later(s, 100*time.Millisecond, 1500*time.Millisecond, func() { m.disk.change(func(d *disk) { d.hangs = false }) })
}

var errFull = errors.New("no space left on device")

func (w *world) fillDisk(s *stream) {
	m := w.either(s)
	m.disk.change(func(d *disk) { d.refused = errFull })
	w.later(s, 50*time.Millisecond, time.Second, func() { m.disk.change(func(d *disk) { d.refused = nil }) })
}

func (w *world) transfer(s *stream) {
	m := w.leader()
	if m == nil {
		return
	}
	g, to := m.group(), ""
	if s.below(2) == 0 {
		to = w.others(m)[s.below(2)].id
	}
	if g == nil {
		return
	}
	w.undoing.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if g.Transfer(ctx, to) == nil {
			w.count("transfers done")
		}
	})
}

// clockFault does one of what source allows.
func (w *world) clockFault(s *stream) {
	m := w.either(s)
	jump := int64(s.span(1001*time.Millisecond, time.Hour))
	back := int64(s.span(time.Millisecond, 1500*time.Millisecond))
	kind := s.below(6)
	m.source.change(func(monotonic, raw *face) {
		switch kind {
		case 0: // both, as after a freeze
			monotonic.shown += jump
			raw.shown += jump
		case 1:
			raw.shown += int64(s.span(time.Millisecond, time.Hour))
		case 2:
			raw.shown -= back
		case 3:
			monotonic.shown -= back
			raw.shown -= back
		case 4:
			raw.still = true
		case 5:
			monotonic.still, raw.still = true, true
		}
	})
	if kind >= 4 {
		w.later(s, 10*time.Millisecond, 400*time.Millisecond, func() {
			m.source.change(func(monotonic, raw *face) { monotonic.still, raw.still = false, false })
		})
	}
}

// edit changes an amount of a policy.
func (w *world) edit(s *stream) {
	m := w.leader()
	if m == nil {
		return
	}
	g := m.group()
	if g == nil {
		return
	}
	set := policies(uint64(1 + s.below(8)))
	w.undoing.Go(func() { w.orderSet(m, g, set) })
}

// orderSet has a policy set ordered, and writes down what came of it.
func (w *world) orderSet(m *machine, g *partition.Group, set edition) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	sent := w.now()
	version, err := g.ChangePolicies(ctx, set.set, nil)
	if p := m.process(); p == nil || p.group.Load() != g || p.died() {
		err = errDead // its answer is never heard
	}
	w.history.policies(w, set, sent, version, err)
}
