package main

import (
	"net/http"
	_ "net/http/pprof"
	"os"
)

// The bench lays this file over cmd/quotanode when it is asked for profiles, so that what it measures is the
// node as it is, and what users get has no such address.
func init() {
	if address := os.Getenv("QUORATE_BENCH_PROFILE"); address != "" {
		go func() { panic(http.ListenAndServe(address, nil)) }()
	}
}
