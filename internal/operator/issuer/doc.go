// Package issuer gives certificates to nodes and gateways in Kubernetes, where neither cert-manager nor a person does:
// it makes a CA once, and keeps Secrets as they should be.
//
//	PREFIX-ca          the CA: tls.crt, tls.key; only the operator reads it
//	PREFIX-node-NODE   quorate://peer/NODE: ca.crt, tls.crt, tls.key
//	quorate-gateway    quorate://gateway/NAMESPACE?domains=...: in the release's namespace, and in each that the
//	                   configuration names while its label quorate.dev/gateway is "true"
//
// The operator's own certificate, a policy writer's, is in its memory only; see [Issuer.Keeper].
//
// Each look is: gather what there is, plan (pure: what there is, the time, and what is wanted), act. There is no state but
// the Secrets, so that any operator goes on where another one has stopped.
//
// Invariants:
//
//   - There is one CA. It is made on the condition that there is none, and every other write on the condition that the
//     Secret still is what the plan saw: of two operators, or with an old view, the second looks again and takes what
//     it finds. A CA that is gone while a node has a certificate of it, is damaged, or doesn't fit its key, is told of
//     and changes nothing.
//   - A Secret that this operator didn't make is never touched: event SecretIsAnothers. It made what has its label and
//     its annotation, so that two releases in one cluster don't fight over a namespace.
//   - No certificate is valid beyond its CA. Each is renewed after two thirds of its life (up to a twentieth of it earlier,
//     by a hash), and replaced at once when it is damaged, or its role or its CA is not what is wanted.
//   - Nothing is revoked but by time: who has copied a key may use it until its certificate ends. So give certificates a
//     short life where that matters. To take rights back at once there is only another CA: delete PREFIX-ca and all
//     PREFIX-node-NODE, and all are made anew; until every process has read its own, some refuse each other.
//   - Nothing has an owner: the CA and the certificates outlive the release that is uninstalled, so that its volumes
//     find them again when it is back.
//
// A CA is valid for ten years. After eight another one is made, and takes its place in three steps, each of which waits
// until every Secret agrees, and then a week: both are trusted and the old one signs; the new one signs; the old one
// is trusted no more. Nobody restarts for it. See trust.go.
//
// What it needs to be allowed, by Role, and nothing of it in the whole cluster:
//
//   - in the release's namespace: create secrets; get, update secrets PREFIX-ca, quorate-gateway and each PREFIX-node-NODE;
//   - in each gateway namespace: create secrets; get, update, delete secret quorate-gateway;
//   - in both: create, patch events (events.k8s.io), beside the Secrets that they are about;
//   - with gateway namespaces, in the cluster: get, list, watch namespaces.
//
// `create` can't be bound to names, so it could also make Secrets of other names there; nothing of those is ever read.
package issuer
