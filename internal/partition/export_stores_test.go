package partition

// Disk is what the stores stand on, for tests that put faults in between.
type Disk = disk

// Wrap makes OpenStores stand on what wrap returns.
func (o *StoreOptions) Wrap(wrap func(Disk) Disk) { o.wrap = wrap }
