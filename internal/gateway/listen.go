package gateway

import (
	"errors"
	"fmt"
	"net"
)

// ErrReachable says that an address can be reached from other machines, where nothing may be that asks for no
// certificate.
var ErrReachable = errors.New("reachable from other machines")

// ListenHTTP opens the address that the named flag gave for the HTTP front: host:port, where an empty host is
// 127.0.0.1 and port 0 any free one. It refuses what is reachable from beyond this machine: whoever reaches the
// front could spend anybody's allowance. Its errors name the flag and say what to do.
func ListenHTTP(flag, address string) (net.Listener, error) {
	return listen(flag, address, "; the HTTP front shows and asks for no certificate in this version, so it is for callers on this machine: "+
		"use 127.0.0.1:%s, and run the gateway beside whoever asks; over gRPC certificates let in other machines")
}

// ListenGRPC is ListenHTTP for the gRPC service. With certificates it may be reachable.
func ListenGRPC(flag, address string, certificates bool) (net.Listener, error) {
	if certificates {
		return listen(flag, address, "")
	}
	return listen(flag, address, ", which needs certificates: give --ca, --cert and --key, or use 127.0.0.1:%s")
}

// ListenHealth is ListenHTTP for metrics and health, which show no key and no policy, and change nothing: they may
// be reachable.
func ListenHealth(flag, address string) (net.Listener, error) { return listen(flag, address, "") }

// listen opens an address. If it is reachable, advice says why it must not be and what to do, with a place for its port;
// empty: it may be.
func listen(flag, address, advice string) (net.Listener, error) {
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
	if advice != "" && isReachable(at) {
		return nil, fmt.Errorf("--%s %q: %w"+advice, flag, address, ErrReachable, port)
	}
	l, err := net.ListenTCP("tcp", at)
	if err != nil {
		return nil, fmt.Errorf("--%s %q: %w; choose another port, or 0 for any free one", flag, address, err)
	}
	return l, nil
}

// isReachable says whether the address can be reached from beyond this machine.
func isReachable(a net.Addr) bool {
	at, ok := a.(*net.TCPAddr)
	return ok && !at.IP.IsLoopback()
}
