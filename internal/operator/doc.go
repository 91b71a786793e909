// Package operator makes the policies that are declared in Kubernetes those that the nodes enforce, and says of each
// object what became of it.
//
// Every reconcile is of the whole world: it reads the set that is in force ([Nodes]), lists all RateLimitPolicies, makes
// a plan (plan.go, pure), and either has the nodes put it in force, on the condition that nothing came in between, and looks
// again; or, where nothing is to be changed, writes statuses of what every partition's leader enforces. What happened before, and
// which event it was, makes no difference.
//
// Invariants:
//
//   - Each object is read by the policy file's reader, as the API server has it, and a change is judged by package policy,
//     so the answer is the nodes' own. What is refused is refused whole, and concerns that object alone: so is a field
//     that only a newer version knows. Its last good revision stays: the set in force is the memory of it. So does
//     an object's policy whose domain isn't allowed any more.
//   - Seeing nothing is no instruction. An error of a list is no empty list. What the set holds and no object stands
//     for is removed only once that has been so for a while, and is held where more than one policy and more than a
//     fifth of the set would go, or the last of a domain: until somebody confirms just these, by the annotation
//     quorate.dev/confirm-removal of the ConfigMap quorate-held-removal, or applies the smaller set with quotactl.
//   - Programmed is True only while, for every partition, a leader that a majority has confirmed enforces a version that
//     this process knows to hold the object's generation. It claims nothing about traffic.
//   - It writes only what differs, and tells events only of conditions that change. Its metrics have no label that
//     grows with objects.
//   - There is no finalizer: nothing in Kubernetes ever waits for it. Two of it do no harm, as nodes take a set only in the
//     place of the one that was seen before its objects were listed; leader election only saves work.
//
// What it may do in Kubernetes, and needs to, besides what the issuer needs:
//
//	everywhere                 ratelimitpolicies.quorate.dev            get, list, watch
//	everywhere                 ratelimitpolicies.quorate.dev/status     patch
//	everywhere                 events.events.k8s.io                     create, patch
//	in its own namespace       leases.coordination.k8s.io               create; get, update, patch of quorate-operator
//	in its own namespace       configmaps                               create; get, list, watch, update, patch, delete of quorate-held-removal
//
// cmd/operator starts it. It never reads or writes usage, and no decision waits for it: while it is away the nodes go on with
// what they have.
package operator
