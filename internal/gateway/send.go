package gateway

import (
	"google.golang.org/grpc/status"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// run sends answers until all that was received is answered, or the stream breaks.
func (c *conversation) run() error {
	c.server.metrics.streams.Inc()
	defer c.server.metrics.streams.Dec()
	c.server.streams.Go(func() {
		if !c.server.guard(frontGRPC, c.receive) {
			c.breakOff(errDefect)
		}
	})
	defer close(c.gone)
	stopping := c.server.stopping
	for {
		select {
		case <-c.wake:
		case <-stopping:
			stopping = nil
			c.stop()
		case <-c.stream.Context().Done():
			c.leave()
			return status.FromContextError(c.stream.Context().Err()).Err()
		}
		if err := c.flush(); err != nil {
			c.leave()
			return err
		}
		if finished, err := c.finished(); finished {
			return err
		}
	}
}

// end says that nothing more is received, and why; nil: the caller has no more questions.
func (c *conversation) end(cause error) {
	c.mu.Lock()
	if !c.over {
		c.over, c.cause = true, cause
	}
	c.mu.Unlock()
	notify(c.wake)
}

// breakOff ends the stream without waiting for what is open: a defect may have kept it from being asked.
func (c *conversation) breakOff(cause error) {
	c.mu.Lock()
	clear(c.open)
	c.over, c.cause = true, cause
	c.mu.Unlock()
	notify(c.wake)
}

// stop lets what is in flight be answered, and nothing else.
func (c *conversation) stop() {
	c.mu.Lock()
	c.refuse = true
	c.mu.Unlock()
}

func (c *conversation) leave() {
	c.mu.Lock()
	c.returns = true
	c.mu.Unlock()
}

// flush sends all that is there: what gathers while one message is on its way makes the next one, so that
// no timer is needed to make messages large.
func (c *conversation) flush() error {
	for {
		c.mu.Lock()
		ready := c.ready
		c.ready = nil
		c.mu.Unlock()
		if len(ready) == 0 {
			return nil
		}
		if err := c.send(ready); err != nil {
			return err
		}
	}
}

// send sends answers in as few messages as the bounds allow.
func (c *conversation) send(ready []*quotav1.TaggedAnswer) error {
	m, size := &quotav1.CheckStreamResponse{}, 0
	for _, a := range ready {
		n := sizeOf(a)
		if len(m.Answers) > 0 && (len(m.Answers) == maxChecks || size+n > maxMessage) {
			if err := c.sendOne(m); err != nil {
				return err
			}
			m, size = &quotav1.CheckStreamResponse{}, 0
		}
		m.Answers = append(m.Answers, a)
		size += n
	}
	return c.sendOne(m)
}

// sendOne closes the tags of a message before it goes: the caller may use them again as soon as it has it.
func (c *conversation) sendOne(m *quotav1.CheckStreamResponse) error {
	c.mu.Lock()
	for _, a := range m.Answers {
		delete(c.open, a.Tag)
	}
	c.mu.Unlock()
	err := c.stream.Send(m)
	notify(c.room)
	return err
}

// finished reports whether run may return, and with what.
func (c *conversation) finished() (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) > 0 || !c.over && !c.refuse {
		return false, nil
	}
	c.returns = true
	if c.refuse && !c.over {
		o := failed(quotav1.FailureReason_FAILURE_REASON_SHUTTING_DOWN, "the gateway is stopping")
		return true, statusOf(&o)
	}
	return true, c.cause
}
