package partition

// Wrap makes OpenStores stand on what wrap returns.
func (o *StoreOptions) Wrap(wrap func(Disk) Disk) { o.wrap = wrap }

// LogFrom is what the entries from an index on weigh, LogWithin how many of the newest weigh at most so much.
func (s *Stores) LogFrom(index uint64) uint64   { return s.weights.from(index) }
func (s *Stores) LogWithin(bytes uint64) uint64 { return s.weights.within(bytes) }
