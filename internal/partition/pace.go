package partition

import "time"

const (
	// paceSpan is for how long the shortest time that an entry took counts, at least.
	paceSpan = 10 * time.Second
	// longestRest bounds what a check can lose, and the harm of a time that says nothing, as after a stall.
	longestRest = 5 * time.Millisecond
)

// pace says how long to rest between entries, so that more checks share the next one. An entry costs the same work
// whatever is in it. Where processors and disks have nothing else to do, that is no reason to wait. Where an entry took
// longer than the log needs, it stood in line for them: with the entries of other partitions, most likely. What it stood
// in line for, it leaves to them before the next, as congestion control by delay does (Brakmo and Peterson, TCP Vegas).
type pace struct {
	begun    int64         // monotonic; of the span
	shortest time.Duration // of it
	before   time.Duration // of the span before
}

// rest returns how long to rest after an entry that took so long and had so many checks. Who asks alone is never held
// up: there is nobody to share with.
func (p *pace) rest(now int64, took time.Duration, checks int) time.Duration {
	if p.begun == 0 || now-p.begun > int64(paceSpan) {
		p.begun, p.before, p.shortest = now, p.shortest, took
	}
	p.shortest = min(p.shortest, took)
	needed := p.shortest
	if p.before != 0 {
		needed = min(needed, p.before)
	}
	if checks < 2 {
		return 0
	}
	return min(took-needed, longestRest)
}
