package server

import (
	"fmt"
	"net"
)

// Listen opens the address that the named flag gave: host:port, where an empty host is 127.0.0.1 and port
// 0 any free one. Without certificates it refuses what is reachable from beyond this machine: whoever
// reaches a node could spend anybody's allowance. Its errors name the flag and say what to do.
func Listen(flag, address string, certificates bool) (net.Listener, error) {
	return listen(flag, address, certificates)
}

// ListenHealth is Listen for the address of metrics and health, which may be anywhere: whoever reads it sees
// no key and no policy, and changes nothing.
func ListenHealth(flag, address string) (net.Listener, error) { return listen(flag, address, true) }

func listen(flag, address string, anywhere bool) (net.Listener, error) {
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
	if !anywhere && isReachable(at) {
		return nil, fmt.Errorf("--%s %q: reachable from other machines, which needs certificates, and there are none: "+
			"use 127.0.0.1:%s, and let the gateway run on this machine", flag, address, port)
	}
	l, err := net.ListenTCP("tcp", at)
	if err != nil {
		return nil, fmt.Errorf("--%s %q: %w; choose another port, or 0 for any free one", flag, address, err)
	}
	return l, nil
}

// isReachable says whether other machines may reach the address.
func isReachable(a net.Addr) bool {
	at, ok := a.(*net.TCPAddr)
	return ok && !at.IP.IsLoopback()
}
