package rig

import (
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
)

// FreeAddress returns a loopback address that nobody listens at, and that no other call gets. Its port is below
// those that the kernel gives to whoever dials, so it is still free when a node comes back.
func FreeAddress(t testing.TB) string {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	for range lastPort - firstPort {
		if ports.next++; ports.next > lastPort || ports.next < firstPort {
			ports.next = firstPort
		}
		address := fmt.Sprintf("127.0.0.1:%d", ports.next)
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close() // nobody has connected to it
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

const firstPort, lastPort = 12000, 31999

// ports are given out one after the other; where they begin differs by process.
var ports = struct {
	sync.Mutex
	next int
}{next: firstPort + os.Getpid()*7%(lastPort-firstPort)}
