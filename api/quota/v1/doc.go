// Package quotav1 is the wire contract between those who ask for admission and the nodes that decide
// it: Go code generated from quota.proto, whose comments state the contract (outcomes, units, bounds,
// what each failure leaves behind). Nothing in this package is written by hand but this comment;
// `make gen` rewrites the rest.
//
// It depends on protobuf and grpc alone, so that an application can import it without the node.
package quotav1
