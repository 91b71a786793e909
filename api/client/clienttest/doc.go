// Package clienttest is a Quorate cluster in memory, for tests of what uses package client.
//
// It decides with the same state machine as a node, so limits, denials, waits and repeated ids are what they
// would be. What it lacks is all that makes a cluster one: replicas, disks, elections. It holds one leader for
// each partition, answers at once, and forgets everything when it is closed.
//
// Its time stands still until [Server.Advance] moves it, and [Server.ClientConfig] gives a client the same
// clock: a test that waits for a window to pass doesn't wait. Only deadlines and pauses between repeated sends
// go by real time.
//
// A client reaches it in memory, so it works in a bubble of testing/synctest, too; [Server.Listen] lets others
// reach it by TCP.
//
// Failures are played by [Server.FailNext], [Server.LoseNext] and [Server.DropStreams].
package clienttest
