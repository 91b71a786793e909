package order

import "context"

// spill writes the rows in memory to disk as a run.
func (s *Sorter) spill(ctx context.Context) error {
	if len(s.held.chunks) == 0 {
		return nil
	}
	err := s.writeRun(func(add func(int64, []byte) error) error {
		return merge(ctx, s.held.sources(), add)
	})
	s.held.reset()
	return err
}

// spillRow writes a row that is larger than the memory as a run of its own, without a copy of it.
func (s *Sorter) spillRow(time int64, payload []byte) error {
	return s.writeRun(func(add func(int64, []byte) error) error { return add(time, payload) })
}

func (s *Sorter) writeRun(rows func(add func(int64, []byte) error) error) error {
	if s.disk == nil {
		d, err := newDisk(s.dir, s.create)
		if err != nil {
			return err
		}
		s.disk = d
	}
	r, err := s.writeRunTo(s.disk, rows)
	if err != nil {
		return err
	}
	r.seq = len(s.runs)
	s.runs = append(s.runs, r)
	s.spilled++
	return nil
}

func (s *Sorter) writeRunTo(d *disk, rows func(add func(int64, []byte) error) error) (run, error) {
	if s.scratch == nil {
		s.scratch = make([]byte, s.unit)
	}
	w := newRunWriter(d, d.size, s.scratch)
	if err := rows(w.add); err != nil {
		return run{}, err
	}
	r, err := w.close()
	if err != nil {
		return run{}, err
	}
	s.written += r.end - r.off
	d.size = r.end
	return r, nil
}

// mergePasses merges runs that follow each other in the order of Add until all that are left can be
// merged at once. Each pass goes to a new file, so that the space of the one before comes back.
func (s *Sorter) mergePasses(ctx context.Context) error {
	for len(s.runs) > 2 && s.width(runChains(s.runs)) > s.mergeMemory() {
		if err := s.mergePass(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sorter) mergePass(ctx context.Context) error {
	next, err := newDisk(s.dir, s.create)
	if err != nil {
		return err
	}
	var merged []run
	for rest := s.runs; len(rest) > 0; {
		n := s.atOnce(rest)
		sources := s.sources(rest[:n])
		r, err := s.writeRunTo(next, func(add func(int64, []byte) error) error {
			return merge(ctx, sources, add)
		})
		if err != nil {
			_ = next.Close() // the error before is the one to be told
			return err
		}
		s.giveBack(sources)
		r.seq = len(merged)
		merged = append(merged, r)
		rest = rest[n:]
	}
	old := s.disk
	s.disk, s.runs = next, merged
	return old.Close()
}

// mergeMemory is what buffers for reading may take while there is one for writing.
func (s *Sorter) mergeMemory() int64 { return s.memory - int64(s.unit) }

// atOnce says how many of the first runs can be merged within the memory: at least two, if there are so
// many, or there would be no end.
func (s *Sorter) atOnce(runs []run) int {
	n, sum := 0, int64(0)
	for ; n < len(runs); n++ {
		sum += int64(s.bufferFor(runs[n : n+1]))
		if n >= 2 && sum > s.mergeMemory() {
			break
		}
	}
	return n
}

// runChains are runs that can be read one after another.
func runChains(runs []run) [][]run {
	spans := make([]span, len(runs))
	bySeq := make(map[int]run, len(runs))
	for i, r := range runs {
		spans[i] = r.span
		bySeq[r.seq] = r
	}
	var all [][]run
	for _, c := range chains(spans) {
		chain := make([]run, len(c))
		for i, s := range c {
			chain[i] = bySeq[s.seq]
		}
		all = append(all, chain)
	}
	return all
}

// width is the size of the buffers that it takes to read chains at once.
func (s *Sorter) width(chains [][]run) (sum int64) {
	for _, chain := range chains {
		sum += int64(s.bufferFor(chain))
	}
	return sum
}

// bufferFor is the size of the buffer to read a chain: for its largest frame, and at least a block.
func (s *Sorter) bufferFor(chain []run) int {
	n := s.unit
	for _, r := range chain {
		n = max(n, r.widest)
	}
	return n
}

// sources opens runs for a merge. The blocks of the rows that were in memory are the buffers now.
func (s *Sorter) sources(runs []run) (sources []source) {
	for _, chain := range runChains(runs) {
		sources = append(sources, newRunSource(s.disk, chain, s.held.buffer(s.bufferFor(chain))))
	}
	return sources
}

func (s *Sorter) giveBack(sources []source) {
	for _, from := range sources {
		s.held.giveBack(from.(*runSource).buffer)
	}
}
