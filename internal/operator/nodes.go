package operator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/policy"
)

// Nodes is what the operator asks of a cluster. [Cluster] does it.
type Nodes interface {
	// Enforced says what each partition's leader enforces, as [client.Admin.Enforced] does.
	Enforced(context.Context) (*client.Enforced, error)
	// Policies returns the newest set that a node knows, in canonical form, and its version; nil: there is none yet. It
	// fails if every node that answers knows an older one than that.
	Policies(ctx context.Context, atLeast *quotav1.SetVersion) ([]byte, *quotav1.SetVersion, error)
	// Apply puts a set in the place of the one in force, as [client.Admin.Apply] does.
	Apply(context.Context, []byte, *quotav1.ApplyOptions) (*quotav1.ApplyPoliciesResponse, error)
}

// version is a set's; the zero one is none's.
type version struct{ epoch, number uint64 }

func versionOf(m *quotav1.SetVersion) version { return version{m.GetEpoch(), m.GetNumber()} }

func (v version) wire() *quotav1.SetVersion {
	return &quotav1.SetVersion{Epoch: v.epoch, Number: v.number}
}

func (v version) before(o version) bool {
	return v.epoch < o.epoch || v.epoch == o.epoch && v.number < o.number
}

// follows says that no other version was in force between o and v.
func (v version) follows(o version) bool {
	return v == o || v.epoch == o.epoch && v.number == o.number+1
}

// String is as statuses and quotactl have it.
func (v version) String() string { return fmt.Sprintf("%d.%d", v.epoch, v.number) }

// parseVersion reads what String wrote; anything else is the zero version.
func parseVersion(text string) (v version) {
	if n, err := fmt.Sscanf(text, "%d.%d", &v.epoch, &v.number); n != 2 || err != nil || v.String() != text {
		return version{}
	}
	return v
}

// observation is what the nodes say at one moment.
type observation struct {
	force      *force
	cluster    string // its id
	partitions int
	confirmed  map[uint32]version // of the partitions whose leaders a majority has confirmed
}

// observe asks the nodes once. A set that is the same as before isn't read again.
func observe(ctx context.Context, nodes Nodes, before *force) (*observation, error) {
	o := &observation{}
	if err := o.ask(ctx, nodes); err != nil {
		return nil, fmt.Errorf("ask the nodes what they enforce: %w", err)
	}
	// What a majority has confirmed is no older than this, so a node that is behind is found out.
	var newest version
	for _, v := range o.confirmed {
		if newest.before(v) {
			newest = v
		}
	}
	canonical, wire, err := nodes.Policies(ctx, newest.wire())
	if err != nil {
		return nil, fmt.Errorf("ask the nodes for the policies in force: %w", err)
	}
	v := versionOf(wire)
	if before != nil && before.version == v && before.cluster == o.cluster {
		o.force = before
		return o, nil
	}
	var set policy.Set
	if wire != nil {
		if set, err = policy.ParseCanonical(canonical); err != nil {
			return nil, fmt.Errorf("read the policies in force: %w", err)
		}
	}
	o.force = newForce(set, v)
	o.force.cluster = o.cluster
	return o, nil
}

// errAnotherCluster says that the nodes were founded anew since they were first asked.
var errAnotherCluster = errors.New("the nodes belong to another cluster than a moment before")

// ask reads what every partition enforces.
func (o *observation) ask(ctx context.Context, nodes Nodes) error {
	e, err := nodes.Enforced(ctx)
	switch {
	case err != nil:
		return err
	case o.cluster != "" && o.cluster != string(e.Cluster):
		return errAnotherCluster
	}
	o.cluster, o.partitions, o.confirmed = string(e.Cluster), e.Partitions, map[uint32]version{}
	for p, v := range e.Versions {
		o.confirmed[p] = versionOf(v)
	}
	return nil
}

// everywhere says that every partition is confirmed to enforce the set in force, or a later one.
func (o *observation) everywhere() bool {
	for _, v := range o.confirmed {
		if v.before(o.force.version) {
			return false
		}
	}
	return len(o.confirmed) == o.partitions
}

// overtaken says that a partition enforces a set that came after the one that is known here.
func (o *observation) overtaken() bool {
	for _, v := range o.confirmed {
		if o.force.version.before(v) {
			return true
		}
	}
	return false
}

// await asks again until the set in force is everywhere, or time is up: then what is missing is missing.
func (o *observation) await(ctx context.Context, nodes Nodes, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	look := time.NewTicker(confirmEvery)
	defer look.Stop()
	for !o.everywhere() {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			if err := o.ask(ctx, nodes); err != nil && ctx.Err() == nil {
				o.confirmed = nil // nobody answers any more
			}
		}
	}
}

// confirmEvery is how long the operator pauses before it asks again.
const confirmEvery = 500 * time.Millisecond

// nodeProblem is what the nodes have against a set.
type nodeProblem struct{ policy, field, reason string }

// Cluster is a cluster, at the addresses of all its nodes. It dials when it is first asked, and is safe for concurrent use.
type Cluster struct {
	addresses []string
	security  func(context.Context) (*tls.Config, error)

	mu   sync.Mutex
	ways []*client.Admin // to all nodes at once, then to each of them
}

// NewCluster prepares to ask the nodes at these addresses. Security tells with which certificate, and may wait for
// one; a configuration that is nil is for nodes on this machine.
func NewCluster(addresses []string, security func(context.Context) (*tls.Config, error)) *Cluster {
	return &Cluster{addresses: slices.Clone(addresses), security: security}
}

func (c *Cluster) dial(ctx context.Context) ([]*client.Admin, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ways) > len(c.addresses) {
		return c.ways, nil
	}
	config, err := c.security(ctx)
	if err != nil {
		return nil, fmt.Errorf("the operator's certificate: %w", err)
	}
	for i := len(c.ways); i <= len(c.addresses); i++ {
		to := c.addresses
		if i > 0 {
			to = c.addresses[i-1 : i]
		}
		way, err := client.NewAdmin(to, config)
		if err != nil {
			return nil, err
		}
		c.ways = append(c.ways, way)
	}
	return c.ways, nil
}

// Close ends the connections, and with them what is in flight.
func (c *Cluster) Close() (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, way := range c.ways {
		err = errors.Join(err, way.Close())
	}
	c.ways = nil
	return err
}

// Enforced is part of [Nodes].
func (c *Cluster) Enforced(ctx context.Context) (*client.Enforced, error) {
	ways, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	return ways[0].Enforced(ctx)
}

// setWithin bounds how long one node may take to send the set.
const setWithin = 20 * time.Second

// errBehind says that a node that was asked knows an older set than there is.
var errBehind = errors.New("the node knows an older set of policies than is in force")

// Policies is part of [Nodes].
func (c *Cluster) Policies(ctx context.Context, atLeast *quotav1.SetVersion) (canonical []byte, v *quotav1.SetVersion, err error) {
	ways, err := c.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	var failed []error
	for i, admin := range ways[1:] {
		canonical, v, err := c.policiesOf(ctx, admin)
		if err == nil && versionOf(v).before(versionOf(atLeast)) {
			err = fmt.Errorf("%s: %w", c.addresses[i], errBehind)
		}
		if err == nil {
			return canonical, v, nil
		}
		failed = append(failed, err)
	}
	return nil, nil, errors.Join(failed...)
}

func (c *Cluster) policiesOf(ctx context.Context, admin *client.Admin) ([]byte, *quotav1.SetVersion, error) {
	ctx, cancel := context.WithTimeout(ctx, setWithin)
	defer cancel()
	canonical, v, _, err := admin.Policies(ctx)
	return canonical, v, err
}

// Apply is part of [Nodes].
func (c *Cluster) Apply(ctx context.Context, text []byte, options *quotav1.ApplyOptions) (*quotav1.ApplyPoliciesResponse, error) {
	ways, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	return ways[0].Apply(ctx, text, options)
}
