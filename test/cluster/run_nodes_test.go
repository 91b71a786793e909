package cluster_test

import (
	"testing"

	"github.com/quorate/quorate/test/rig"
)

// names are those of the nodes of every cluster here.
var names = rig.Names()

// nodes is a cluster of `quotanode run`.
type nodes struct{ *rig.Nodes }

// found starts a cluster, and returns once all nodes are ready and the policies are enforced everywhere. It ends
// with the test at the latest.
func found(t *testing.T, s rig.Shape) *nodes {
	t.Helper()
	return &nodes{programs.Found(t, s)}
}
