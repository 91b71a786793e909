package main

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/quorate/quorate/api/client/clienttest"
	"github.com/quorate/quorate/cmd/internal/command"
)

// TestItAsksACluster: with the real client, over TCP, until the allowance is used up.
func TestItAsksACluster(t *testing.T) {
	nodes, err := clienttest.Start(clienttest.Config{Partitions: 3, Policies: `
policies:
- name: conversions
  domain: video-api
  key: [principal]
  limits:
  - {name: per-minute, rollingWindow: {limit: 3, window: 60s}}
`})
	if err != nil {
		t.Fatal(err)
	}
	defer nodes.Close()
	address, err := nodes.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &pipe{lines: make(chan string, 10)}
	p := program{out: out, errs: io.Discard, connect: connect}
	ended := make(chan int, 1)
	go func() { ended <- p.run(ctx, append([]string{"--nodes", address}, anywhere...)) }()
	front := out.next(t, "http")
	out.next(t, "grpc")
	out.next(t, "health")
	out.next(t, "ready")
	for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		response, err := http.Get("http://" + front + "/check?principal=u42")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil || response.Body.Close() != nil || response.StatusCode != want {
			t.Errorf("check %d: %d %s, %v", i, response.StatusCode, body, err)
		}
		if want == http.StatusTooManyRequests && response.Header.Get("Retry-After") != "61" {
			t.Errorf("Retry-After %q", response.Header.Get("Retry-After"))
		}
	}
	cancel()
	if status := <-ended; status != command.OK {
		t.Errorf("status %d", status)
	}
}
