package partition

// Wrap makes OpenStores stand on what wrap returns.
func (o *StoreOptions) Wrap(wrap func(Disk) Disk) { o.wrap = wrap }
