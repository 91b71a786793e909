package client

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// The defaults of a Config.
const (
	DefaultMaxInFlight = 8192
	DefaultTimeout     = 2 * time.Second
)

// Config is how a client reaches its cluster.
type Config struct {
	// Addresses are gRPC addresses of nodes, "host:port": any, one at least. More of them let a client start
	// while some nodes are down; it hears of all leaders from whichever it reaches.
	Addresses []string
	// TLS is how nodes are dialled and verified. Nil: in clear, to loopback addresses only.
	TLS *tls.Config
	// Log hears of nodes that are lost; nil: nobody does.
	Log *slog.Logger
	// Registry takes the client's metrics; nil: they are counted for nobody.
	Registry prometheus.Registerer
	// MaxInFlight bounds the checks that wait for an answer; those above it are refused at once, as
	// overloaded. More of them cost memory, a few KiB each. 0: DefaultMaxInFlight.
	MaxInFlight int
	// Timeout is the deadline of a check whose context has none. It must outlast an election if failovers
	// are not to be seen. 0: DefaultTimeout.
	Timeout time.Duration

	// Now reads a monotonic clock, in nanoseconds, by which denials are remembered; After returns a channel
	// that gets a value once d has passed on it, and a function that gives that up. Tests give both, together
	// with a server whose time they move by hand. Nil: the process's clock.
	Now   func() int64
	After func(d time.Duration) (<-chan time.Time, func())
	// Dialer connects to an address in the place of TCP, which is what nil is; the rules for addresses stay.
	Dialer func(ctx context.Context, address string) (net.Conn, error)
}

// Client asks a cluster for admission. It is safe for concurrent use.
type Client struct {
	cfg     Config
	log     *slog.Logger
	now     func() int64
	table   *table
	links   *links
	hints   *hints
	budget  *budget
	metrics *metrics

	inFlight atomic.Int64
	closing  chan struct{} // closed by Close
	closed   sync.Once
	cancel   context.CancelFunc
	watching sync.WaitGroup
}

// New returns a client of the cluster that the addresses lead to, and begins to find out about it. It doesn't
// wait for that: the first checks do. The caller closes it.
func New(cfg Config) (*Client, error) {
	cfg.setDefaults()
	if len(cfg.Addresses) == 0 {
		return nil, errors.New("no address of a node is given")
	}
	c := &Client{cfg: cfg, log: cfg.Log, now: cfg.Now, table: newTable(), hints: newHints(), budget: newBudget(cfg.Now)}
	c.closing = make(chan struct{})
	var err error
	if c.metrics, err = newMetrics(cfg.Registry, c.hints); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.links = &links{client: c, context: ctx, byAddr: map[string]*link{}}
	for _, address := range cfg.Addresses {
		if _, err := c.links.to(address); err != nil {
			c.Close()
			return nil, err
		}
	}
	c.watching.Go(func() { c.watch(ctx) })
	return c, nil
}

func (cfg *Config) setDefaults() {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxInFlight <= 0 {
		cfg.MaxInFlight = DefaultMaxInFlight
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Now == nil {
		begin := time.Now()
		cfg.Now = func() int64 { return int64(time.Since(begin)) }
	}
	if cfg.After == nil {
		cfg.After = func(d time.Duration) (<-chan time.Time, func()) {
			t := time.NewTimer(d)
			return t.C, func() { t.Stop() }
		}
	}
}

// Close ends the client and waits for all that it has started. Checks that are under way end unavailable.
func (c *Client) Close() {
	c.closed.Do(func() {
		close(c.closing)
		c.cancel()
	})
	c.links.close()
	c.watching.Wait()
}

// Ready reports whether every partition has a route and a time, and there are policies.
func (c *Client) Ready() bool { return c.table.view.Load().ready() }

// Domains lists the domains of the policies in hand, in order; none before the first set.
func (c *Client) Domains() []string {
	if s := c.table.view.Load().set; s != nil {
		return s.domainNames()
	}
	return nil
}

// Check asks one question. The answer is an allow or a denial, and only an allow authorises the work; whatever
// is neither is an error, always an [*Unavailable].
//
// The question has no fence, resolution, partition or peek: the client sees to them. A decision id makes the
// repetition of an allow free, so it must not come from whoever is being limited. With an id, remembered
// denials are passed over: what it names may have been allowed.
//
// The context's deadline is the check's; without one it is [Config.Timeout]. An answer that comes later is
// dropped. When the context ends the caller is told at once, and if the check was sent by then its outcome is
// unknown.
func (c *Client) Check(ctx context.Context, question *quotav1.CheckRequest) (*quotav1.Answer, error) {
	a, err := c.check(ctx, question)
	if err != nil {
		c.metrics.failed(err.Reason)
		return nil, err
	}
	return a, nil
}

func (c *Client) check(ctx context.Context, m *quotav1.CheckRequest) (*quotav1.Answer, *Unavailable) {
	q, bad := readQuestion(m)
	if bad != nil {
		return nil, bad
	}
	if f := c.enter(); f != nil {
		return nil, unavailableOf(f).of(q.id)
	}
	defer c.leave()
	ctx, cancel := c.withDeadline(ctx)
	defer cancel()
	deadline, _ := ctx.Deadline()
	in := inquiry{client: c, ctx: ctx, deadline: deadline, question: q}
	a, f := in.run()
	if f == nil && ctx.Err() != nil {
		f = own(outcomeUnknown, "the answer came after the deadline")
	}
	if f != nil {
		return nil, unavailableOf(f).of(in.question.id)
	}
	return a, nil
}

// enter takes a place among the checks in flight.
func (c *Client) enter() *quotav1.Failure {
	select {
	case <-c.closing:
		return own(shuttingDown, errClosed.Error())
	default:
	}
	if c.inFlight.Add(1) > int64(c.cfg.MaxInFlight) {
		c.inFlight.Add(-1)
		return own(overloaded, "too many checks wait for an answer")
	}
	c.metrics.inFlight.Inc()
	return nil
}

func (c *Client) leave() {
	c.inFlight.Add(-1)
	c.metrics.inFlight.Dec()
}

func (c *Client) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, given := ctx.Deadline(); given {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.cfg.Timeout)
}
