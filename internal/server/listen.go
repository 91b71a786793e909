package server

import (
	"fmt"
	"net"
)

// Listen opens the address that the named flag gave: host:port, where an empty host is 127.0.0.1 and port
// 0 any free one. It refuses what is reachable from beyond this machine: without certificates whoever
// reaches a node could spend anybody's allowance. Its errors name the flag and say what to do.
func Listen(flag, address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("--%s %q: %w; it is HOST:PORT, as in 127.0.0.1:8080", flag, address, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	at, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("--%s %q: %w", flag, address, err)
	}
	if !at.IP.IsLoopback() {
		return nil, fmt.Errorf("--%s %q: reachable from other machines, which needs certificates, and this version has none: "+
			"use 127.0.0.1:%s, and let the gateway run on this machine", flag, address, port)
	}
	l, err := net.ListenTCP("tcp", at)
	if err != nil {
		return nil, fmt.Errorf("--%s %q: %w; choose another port, or 0 for any free one", flag, address, err)
	}
	return l, nil
}
