package rig

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// wire is one connection through a web.
type wire struct {
	web              *Web
	from, to, target string
	number           int // newer ones have higher ones
	dialler, dialled net.Conn

	torn    atomic.Bool // bytes of it were lost
	dropped atomic.Bool // its dialler has gone
	ending  sync.Once
}

func (c *wire) between(one, other string) bool {
	return c.from == one && c.to == other || c.from == other && c.to == one
}

// reset ends a connection at once; what was under way is lost.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // if not, it is closed in order, which will do
	}
	_ = conn.Close() // closed before
}

// end ends both halves.
func (c *wire) end() {
	c.ending.Do(func() {
		reset(c.dialler)
		reset(c.dialled)
	})
}

// drop ends the dialler's half now and the other one later.
func (c *wire) drop(keep time.Duration) {
	if !c.dropped.Swap(true) {
		reset(c.dialler)
		time.AfterFunc(keep, c.end)
	}
}

// portion is what was read at once, and when it may go on.
type portion struct {
	bytes []byte
	due   time.Time
}

const (
	portionSize = 16 << 10
	// portions bounds what is on its way through a lane that is slow: two megabytes, as of a long line.
	portions = 128
)

// pump carries what from says to to, until either ends.
func (c *wire) pump(from, to net.Conn, lane *Lane) {
	way := make(chan portion, portions)
	hole := false // nothing goes on behind one
	var delivering sync.WaitGroup
	delivering.Go(func() { c.deliver(way, to, lane) })
	for {
		buffer := make([]byte, portionSize)
		n, err := from.Read(buffer)
		switch {
		case n == 0:
		case hole || lane.swallow.Load():
			hole = true
			c.torn.Store(true)
			lane.cut.Add(int64(n))
		default:
			way <- portion{buffer[:n], time.Now().Add(time.Duration(lane.delay.Load()))}
		}
		if err != nil {
			break
		}
	}
	close(way)
	delivering.Wait()
	if !c.dropped.Load() {
		c.end() // one that was dropped is ended later
	}
}

// deliver writes portions when they are due. It goes on reading when nobody takes them any more, so that nobody
// waits for it.
func (c *wire) deliver(way <-chan portion, to net.Conn, lane *Lane) {
	failed := false
	for p := range way {
		if failed {
			continue
		}
		time.Sleep(time.Until(p.due))
		if rate := lane.rate.Load(); rate > 0 {
			time.Sleep(time.Duration(int64(len(p.bytes)) * int64(time.Second) / rate))
		}
		if c.dropped.Load() && c.web.newer(c) {
			lane.late.Add(int64(len(p.bytes)))
		}
		_, err := to.Write(p.bytes)
		failed = err != nil
		lane.carried.Add(int64(len(p.bytes)))
	}
}
