package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/policy"
)

// configField is one field of the configuration: all that the file's reader, the flags and the reference
// know of it.
type configField struct {
	path      string // nodes[].name is the name of each node
	kind      fieldKind
	required  bool
	fallback  string // the value where nobody gives one; empty: none
	otherwise string // in place of fallback, where that depends: for people
	flag      string // empty: it has none
	optional  bool   // an empty flag counts as one that isn't given: what fills it in may have nothing to say
	doc       string // for people, a phrase
	set       func(*runConfig, string) error
}

// fieldKind is how a value is written, in the words of the reference.
type fieldKind string

const (
	aLabel    fieldKind = "DNS label"
	aText     fieldKind = "text"
	aFolder   fieldKind = "folder"
	aFile     fieldKind = "PEM file"
	anAddress fieldKind = "host:port"
	aNumber   fieldKind = "whole number"
	aSize     fieldKind = "size"
	aDuration fieldKind = "duration"
	aLevel    fieldKind = "level"
)

// The flag that names the file, and those that dev has too are in flags.go.
const (
	configFlag = "config"
	linksFlag  = "links-address"
	healthFlag = "health-address"
)

// configFields are all fields, in the order in which people want to read of them.
var configFields = []configField{
	{path: "name", kind: aLabel, required: true, flag: "name",
		doc: "this node's name: one of `nodes`, and the one in its certificate",
		set: into(func(c *runConfig) *string { return &c.Name }, parseLabel)},
	{path: "zone", kind: aText, otherwise: "the one in `nodes`", flag: "zone", optional: true,
		doc: "what fails together, as a rack or a zone; replicas are spread over zones; an empty flag says nothing",
		set: into(func(c *runConfig) *string { return &c.Zone }, parseZone)},
	{path: "dataDir", kind: aFolder, required: true, flag: "data-dir",
		doc: "where this node keeps its state; made if it isn't there",
		set: into(func(c *runConfig) *string { return &c.DataDir }, parseText)},
	{path: "partitions", kind: aNumber, otherwise: "as many as nodes",
		doc: "how many partitions there are, 1 to 4096; counts at genesis only",
		set: into(func(c *runConfig) *int { return &c.Partitions }, parseNumber(1, 4096))},
	{path: "replication", kind: aNumber, fallback: "3",
		doc: "replicas of each partition, 3 or 5, at most one a node; counts at genesis only",
		set: into(func(c *runConfig) *int { return &c.Replication }, parseReplication)},
	{path: "nodes[].name", kind: aLabel, required: true,
		doc: "the name of an initial node; there are at least three of them, this one included",
		set: into(func(c *runConfig) *string { return &c.last().Name }, parseLabel)},
	{path: "nodes[].links", kind: anAddress, required: true,
		doc: "where the other nodes reach it",
		set: into(func(c *runConfig) *string { return &c.last().Links }, parseDialled)},
	{path: "nodes[].grpc", kind: anAddress, required: true,
		doc: "where gateways, tools and the other nodes reach its gRPC services",
		set: into(func(c *runConfig) *string { return &c.last().GRPC }, parseDialled)},
	{path: "nodes[].zone", kind: aText, otherwise: "none",
		doc: "its zone",
		set: into(func(c *runConfig) *string { return &c.last().Zone }, parseZone)},
	{path: "listen.links", kind: anAddress, otherwise: "this node's in `nodes`", flag: linksFlag,
		doc: "where this node listens for the links of others",
		set: into(func(c *runConfig) *string { return &c.Listen.Links }, parseListened)},
	{path: "listen.grpc", kind: anAddress, otherwise: "this node's in `nodes`", flag: grpcFlag,
		doc: "where it listens for gRPC",
		set: into(func(c *runConfig) *string { return &c.Listen.GRPC }, parseListened)},
	{path: "listen.health", kind: anAddress, fallback: "127.0.0.1:8082", flag: healthFlag,
		doc: "where it serves metrics and health, in clear; port 0: any free one",
		set: into(func(c *runConfig) *string { return &c.Listen.Health }, parseAnyPort)},
	{path: "tls.ca", kind: aFile, otherwise: "none", flag: "ca",
		doc: "the CAs that sign the others' certificates; without `tls` all addresses but `listen.health` are loopback ones",
		set: into(func(c *runConfig) *string { return &c.TLS.CA }, parseText)},
	{path: "tls.cert", kind: aFile, otherwise: "none", flag: "cert",
		doc: "this node's certificate, then those between it and the CA",
		set: into(func(c *runConfig) *string { return &c.TLS.Cert }, parseText)},
	{path: "tls.key", kind: aFile, otherwise: "none", flag: "key",
		doc: "the certificate's private key",
		set: into(func(c *runConfig) *string { return &c.TLS.Key }, parseText)},
	{path: "memory", kind: aSize, fallback: "1GiB",
		doc: "bound of this node's state in logical bytes, 16MiB to 1TiB; counts at genesis only",
		set: into(func(c *runConfig) *uint64 { return &c.Memory }, parseSize(16<<20, 1<<40))},
	{path: "logBytes", kind: aSize, fallback: "64MiB",
		doc: "what a partition's log may weigh before it is compacted to half of that, 8MiB to 16GiB; four times that while a replica catches up",
		set: into(func(c *runConfig) *uint64 { return &c.LogBytes }, parseSize(8<<20, 16<<30))},
	{path: "election", kind: aDuration, fallback: "1s",
		doc: "how long a leader may be silent before the others elect, 200ms to 10s",
		set: into(func(c *runConfig) *time.Duration { return &c.Election }, parseElection)},
	{path: "logLevel", kind: aLevel, fallback: "warn", flag: "log-level",
		doc: "least level of the log on stderr: debug, info, warn or error",
		set: into(func(c *runConfig) *slog.Level { return &c.LogLevel }, command.ParseLevel)},
}

// last is the node that is being read.
func (c *runConfig) last() *nodeConfig { return &c.Nodes[len(c.Nodes)-1] }

// into is the set function of a value that parse reads and that lives at the place given.
func into[T any](at func(*runConfig) *T, parse func(string) (T, error)) func(*runConfig, string) error {
	return func(c *runConfig, text string) error {
		v, err := parse(text)
		if err == nil {
			*at(c) = v
		}
		return err
	}
}

func parseText(text string) (string, error) {
	if text == "" {
		return "", errors.New("is empty")
	}
	return text, nil
}

// parseLabel is as strict as the names in certificates.
func parseLabel(text string) (string, error) {
	const most = 63
	if text == "" || len(text) > most || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" ||
		strings.HasPrefix(text, "-") || strings.HasSuffix(text, "-") {
		return "", fmt.Errorf("%q is not a DNS label: a-z, 0-9 and inner hyphens, at most %d", command.Clip(text), most)
	}
	return text, nil
}

func parseZone(text string) (string, error) {
	const most = 63
	strange := func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("-._", c))
	}
	if text == "" || len(text) > most || strings.ContainsFunc(text, strange) {
		return "", fmt.Errorf("%q is not a zone: letters, digits, '-', '.' and '_', at most %d", command.Clip(text), most)
	}
	return text, nil
}

func parseNumber(least, most int) func(string) (int, error) {
	return func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || strconv.Itoa(n) != text {
			return 0, fmt.Errorf("%q is not a whole number; write its digits alone", command.Clip(text))
		}
		if n < least || n > most {
			return 0, fmt.Errorf("%d is out of range, %d to %d", n, least, most)
		}
		return n, nil
	}
}

func parseReplication(text string) (int, error) {
	if text != "3" && text != "5" {
		return 0, fmt.Errorf("%q is not 3 or 5: a partition outlives the loss of one replica of three, or of two of five", command.Clip(text))
	}
	return int(text[0] - '0'), nil
}

// The parsers of addresses resolve nothing: what a name stands for may change while the node runs.

// parseDialled reads an address that others dial.
func parseDialled(text string) (string, error) {
	host, err := checkAddress(text, 1)
	if at, bad := netip.ParseAddr(host); err == nil && bad == nil && at.IsUnspecified() {
		return "", fmt.Errorf("%q is no address that others can dial; write the machine's own", command.Clip(text))
	}
	return text, err
}

// parseListened reads an address to listen on that others have to know.
func parseListened(text string) (string, error) {
	_, err := checkAddress(text, 1)
	return text, err
}

func parseAnyPort(text string) (string, error) {
	_, err := checkAddress(text, 0)
	return text, err
}

func checkAddress(text string, leastPort uint64) (host string, err error) {
	host, digits, err := command.SplitAddress(text, leastPort)
	if err != nil {
		return "", err
	}
	if host == "" {
		return "", fmt.Errorf("%q has no host; write 127.0.0.1:%s for this machine alone, 0.0.0.0:%s to listen for all", command.Clip(text), digits, digits)
	}
	if _, err := netip.ParseAddr(host); err != nil && !isHostName(host) {
		return "", fmt.Errorf("%q: its host is no IP address and no host name", command.Clip(text))
	}
	return host, nil
}

func isHostName(host string) bool {
	const most = 253
	for label := range strings.SplitSeq(strings.TrimSuffix(host, "."), ".") {
		if _, err := parseLabel(strings.ToLower(strings.ReplaceAll(label, "_", "x"))); err != nil {
			return false
		}
	}
	// All digits and dots was meant as an IP address.
	return len(host) <= most && strings.Trim(host, "0123456789.") != ""
}

// isLoopback says whether an address is on this machine, whatever a resolver says.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	at, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && at.IsLoopback()
}

// sizeUnits are exact: who writes MB means millions.
var sizeUnits = []struct {
	suffix string
	bytes  uint64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1}, {"", 1},
}

func parseSize(least, most uint64) func(string) (uint64, error) {
	return func(text string) (uint64, error) {
		for _, unit := range sizeUnits {
			digits, ok := strings.CutSuffix(text, unit.suffix)
			n, err := strconv.ParseUint(digits, 10, 64)
			if !ok || err != nil || strconv.FormatUint(n, 10) != digits {
				continue
			}
			if high, size := bits.Mul64(n, unit.bytes); high == 0 && least <= size && size <= most {
				return size, nil
			}
			return 0, fmt.Errorf("%s is out of range, %s to %s", command.Clip(text), formatSize(least), formatSize(most))
		}
		return 0, fmt.Errorf("%q is not a size; write it as 64MiB or 1GiB", command.Clip(text))
	}
}

// formatSize writes a size so that it reads back the same.
func formatSize(size uint64) string {
	for _, unit := range sizeUnits {
		if size > 0 && size%unit.bytes == 0 && strings.HasSuffix(unit.suffix, "iB") {
			return strconv.FormatUint(size/unit.bytes, 10) + unit.suffix
		}
	}
	return strconv.FormatUint(size, 10) + "B"
}

func parseElection(text string) (time.Duration, error) {
	const least, most = 200 * time.Millisecond, 10 * time.Second
	ns, err := policy.ParseDuration(text)
	if err != nil {
		return 0, err
	}
	if d := time.Duration(ns); d < least || d > most {
		return 0, fmt.Errorf("%s is out of range, %v to %v", command.Clip(text), least, most)
	}
	return time.Duration(ns), nil
}
