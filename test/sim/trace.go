package sim

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/quorate/quorate/test/sim/exact"
)

// trace is what happened, a line each with the world's time.
type trace struct {
	begun time.Time
	order *exact.Run

	mu    sync.Mutex
	lines bytes.Buffer
}

func (t *trace) add(format string, values ...any) {
	t.order.Aside(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		fmt.Fprintf(&t.lines, "%d ", time.Since(t.begun))
		fmt.Fprintf(&t.lines, format, values...)
		t.lines.WriteByte('\n')
	})
}

func (t *trace) bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.lines.Bytes())
}
