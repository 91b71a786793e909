package client

import "crypto/rand"

// newID makes a decision id.
func newID() (id [16]byte) {
	_, _ = rand.Read(id[:]) // never fails: the process ends first
	return id
}
