package main

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/cmd/internal/command"
)

func newGensampleCommand() *cobra.Command {
	var (
		format, path string
		seed         uint64
	)
	c := &cobra.Command{
		Use:   "gensample",
		Short: "Make a sample log to replay",
		Long: `Make ten minutes of a made-up access log, to try replay on: 40 polite clients with a request every few
seconds each, a scraper with ten a second, and one client with bursts of 50 every two minutes. The same
seed gives the same bytes, always.`,
		Example: "  quotactl gensample -o trace.csv\n  quotactl replay trace.csv --limit 100 --window 60s --key ip",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, ok := map[string]func(io.Writer, []sampleRequest) error{"csv": writeCSV, "combined": writeCombined}[format]
			if !ok {
				return fmt.Errorf("--format %q: want csv or combined", format)
			}
			if err := writeTo(path, cmd.OutOrStdout(), func(w io.Writer) error { return write(w, sample(seed)) }); err != nil {
				return command.Failed(err)
			}
			return nil
		},
	}
	c.Flags().StringVar(&format, "format", "csv", "csv or combined")
	c.Flags().Uint64Var(&seed, "seed", 1, "another sample for each number")
	c.Flags().StringVarP(&path, "output", "o", "-", "file to write; -: standard output")
	return c
}

// writeTo has write write to a file, or to out where the path is "-".
func writeTo(path string, out io.Writer, write func(io.Writer) error) error {
	if path == "-" {
		return write(out)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// sampleRequest is a line of the sample; at counts milliseconds since its start.
type sampleRequest struct {
	at                            int
	ip, host, method, path, agent string
	status, size                  int
}

// The clients of the sample, and its length in milliseconds.
const (
	politeClients = 40
	scraper       = "198.51.100.23"
	burstyClient  = "203.0.113.77"
	sampleLength  = 10 * 60 * 1000
)

// sample makes the requests in the order of their times.
func sample(seed uint64) (all []sampleRequest) {
	r := dice(seed)
	for client := range politeClients {
		ip := "192.0.2." + strconv.Itoa(10+client)
		if client%5 == 4 {
			ip = fmt.Sprintf("2001:db8:%x::%x", client, 1+r.below(0xffff))
		}
		agent := agents[r.below(len(agents))]
		for at := r.below(4000); at < sampleLength; at += 2000 + r.below(4000) { // one in two to six seconds
			all = append(all, r.request(at, ip, "www.example.com", agent))
		}
	}
	for at := 0; at < sampleLength; at += 100 {
		all = append(all, r.request(at, scraper, "www.example.com", "scraper/2.1"))
	}
	for start := 30_000; start < sampleLength; start += 120_000 {
		for at, i := start, 0; i < 50; i++ { // within one to two seconds
			all = append(all, r.request(at, burstyClient, "api.example.com", "batch-importer/1.4"))
			at += 20 + r.below(20)
		}
	}
	slices.SortStableFunc(all, func(a, b sampleRequest) int { return cmp.Compare(a.at, b.at) })
	return all
}

var (
	agents = []string{
		"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Safari/537.36",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1",
	}
	paths = []string{"/", "/products", "/search", "/cart", "/api/items", "/api/prices", "/help"}
)

func (d *dice) request(at int, ip, host, agent string) sampleRequest {
	q := sampleRequest{at: at, ip: ip, host: host, method: "GET", agent: agent, status: 200, size: 500 + d.below(20_000)}
	if q.path = paths[d.below(len(paths))]; d.below(3) == 0 {
		q.path += "?page=" + strconv.Itoa(1+d.below(90))
	}
	switch d.below(40) {
	case 0:
		q.status = 404
	case 1, 2:
		q.method, q.status = "POST", 201
	}
	return q
}

// dice is SplitMix64 (Steele, Lea and Flood, 2014): a sample stays the same whatever a library does.
type dice uint64

// below returns a number from 0 to n-1; that small ones are likelier by a trillionth is no matter here.
func (d *dice) below(n int) int {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return int((z ^ z>>31) % uint64(n))
}

func (q *sampleRequest) time() time.Time {
	return time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(q.at) * time.Millisecond)
}

func writeCSV(w io.Writer, all []sampleRequest) error {
	c := csv.NewWriter(w)
	rows := [][]string{{"ts", "ip", "host", "method", "path", "status", "user_agent"}}
	for i := range all {
		q := &all[i]
		rows = append(rows, []string{
			q.time().Format("2006-01-02T15:04:05.000Z07:00"), q.ip, q.host, q.method, q.path, strconv.Itoa(q.status), q.agent,
		})
	}
	return c.WriteAll(rows)
}

// writeCombined writes the format that nginx and Apache call so; its times are whole seconds.
func writeCombined(w io.Writer, all []sampleRequest) error {
	b := bufio.NewWriter(w)
	for i := range all {
		q := &all[i]
		fmt.Fprintf(b, "%s - - [%s] \"%s %s HTTP/1.1\" %d %d \"-\" \"%s\"\n",
			q.ip, q.time().Format("02/Jan/2006:15:04:05 -0700"), q.method, q.path, q.status, q.size, q.agent)
	}
	return b.Flush()
}
