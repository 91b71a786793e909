package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"time"
)

// profiles takes a CPU profile of each node and of this process, into a folder, for that long from now. The
// function that it returns waits for them. No folder: none are taken.
func (c *cluster) profiles(dir, label string, length time.Duration) (wait func() error, err error) {
	if dir == "" {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	own, err := os.Create(filepath.Join(dir, label+"-client.prof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(own); err != nil {
		return nil, errors.Join(err, own.Close())
	}
	var all sync.WaitGroup
	errs := make([]error, len(c.nodes))
	for i, n := range c.nodes {
		url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", n.pprof, max(1, int(length.Seconds())))
		all.Go(func() { errs[i] = fetch(url, filepath.Join(dir, label+"-"+n.name+".prof")) })
	}
	return func() error {
		pprof.StopCPUProfile()
		all.Wait()
		return errors.Join(append(errs, own.Close())...)
	}, nil
}

func fetch(url, path string) (err error) {
	response, err := http.Get(url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, response.Body)
	return errors.Join(err, f.Close())
}

// fileName is a leg's name without what files' names shouldn't have.
func fileName(name string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, name)
}
