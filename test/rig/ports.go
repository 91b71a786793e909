package rig

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// FreeAddress returns a loopback address that nobody listens at, and that no other call gets, of another process neither. Its
// port is below those that the kernel gives to whoever dials, so it is still free when a node comes back.
func FreeAddress(t testing.TB) string {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	if ports.block == nil {
		ports.take(t)
	}
	for range blockSize {
		port := ports.first + ports.next
		ports.next = (ports.next + 1) % blockSize
		address := fmt.Sprintf("127.0.0.1:%d", port)
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close() // nobody has connected to it
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

const firstPort, blockSize, blocks = 12000, 1000, 20

// ports are given out one after the other, from a block that is this process's until it ends: another one that looked for a
// free port between two looks of this one would find the same.
var ports portBlock

type portBlock struct {
	sync.Mutex
	block       *os.File // locked; nil: none yet
	first, next int
}

func (b *portBlock) take(t testing.TB) {
	t.Helper()
	for i := range blocks {
		f, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("quorate-test-ports-%d.lock", firstPort+i*blockSize)), os.O_CREATE|os.O_RDONLY, 0o644)
		if err != nil {
			continue // another user's
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			b.block, b.first = f, firstPort+i*blockSize
			return
		}
		_ = f.Close() // somebody else's
	}
	t.Fatalf("all %d blocks of ports are taken by other processes", blocks)
}
