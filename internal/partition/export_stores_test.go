package partition

// Disk is what the stores stand on, for tests that put faults in between.
type Disk = disk

// Wrap makes OpenStores stand on what wrap returns.
func (o *StoreOptions) Wrap(wrap func(Disk) Disk) { o.wrap = wrap }

// ParseGenesis and Document are the two directions of the genesis document, for the fuzz target.
func ParseGenesis(b []byte) (Genesis, error) { return parseGenesis(b) }

// Document is what is written of a Genesis.
func (g Genesis) Document() any { return g.document() }
