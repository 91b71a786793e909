//go:build !amd64 && !arm64

package exact

import "errors"

// ErrUnknownRuntime says that the runtime's generators can't be found on this architecture.
var ErrUnknownRuntime = errors.New("the runtime's generators can be found on amd64 and arm64 only")

// Run is one run in a fixed order.
type Run struct{}

// Begin fails.
func Begin() (*Run, error) { return nil, ErrUnknownRuntime }

// Seed does nothing.
func (*Run) Seed(uint64) {}

// Renew does nothing.
func (*Run) Renew(uint64) {}

// Aside calls do.
func (*Run) Aside(do func()) { do() }

// End does nothing.
func (*Run) End() error { return nil }
