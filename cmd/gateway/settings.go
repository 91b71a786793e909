package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/configfile"
)

// settings are what the gateway runs with. One that [readSettings] returns is complete and checked.
type settings struct {
	nodes              []string
	http, grpc, health string
	grpcWanted         bool         // an address of the gRPC service was given
	files              access.Files // all empty: no certificates, and so nothing but loopback addresses
	level              slog.Level
}

// certificates says whether there are certificates.
func (s *settings) certificates() bool { return s.files != (access.Files{}) }

// Names of flags that messages mention.
const (
	configFlag = "config"
	nodesFlag  = "nodes"
	httpFlag   = "http-address"
	grpcFlag   = "grpc-address"
	healthFlag = "health-address"
	caFlag     = "ca"
	certFlag   = "cert"
	keyFlag    = "key"
	levelFlag  = "log-level"
)

// field is one setting: all that the flags and the file's reader know of it.
type field struct {
	name     string // in the file
	flag     string
	fallback string
	list     bool // in the file a list, in the flag separated by commas
	path     bool // in the file relative to its folder
	doc      string
	set      func(*settings, string) error
}

// fields are all settings, in the order in which people want to read of them.
var fields = []field{
	{name: "nodes", flag: nodesFlag, list: true, set: setNodes,
		doc: "gRPC addresses of nodes, any of the cluster: one is enough to find the others, more outlive its loss"},
	{name: "httpAddress", flag: httpFlag, fallback: "127.0.0.1:8080", set: setAddress(func(s *settings) *string { return &s.http }),
		doc: "address of the HTTP front, on this machine; port 0: any free one"},
	{name: "grpcAddress", flag: grpcFlag, fallback: "127.0.0.1:8081", set: setAddress(func(s *settings) *string { return &s.grpc }),
		doc: "address of the gRPC service, on this machine unless there are certificates"},
	{name: "healthAddress", flag: healthFlag, fallback: "127.0.0.1:8082", set: setAddress(func(s *settings) *string { return &s.health }),
		doc: "address of metrics and health, in clear"},
	{name: "ca", flag: caFlag, path: true, set: setFile(func(s *settings) *string { return &s.files.CA }),
		doc: "PEM file with the CAs that sign the certificates of nodes and callers"},
	{name: "cert", flag: certFlag, path: true, set: setFile(func(s *settings) *string { return &s.files.Cert }),
		doc: "PEM file with the gateway's certificate, then those between it and the CA"},
	{name: "key", flag: keyFlag, path: true, set: setFile(func(s *settings) *string { return &s.files.Key }),
		doc: "PEM file with the certificate's private key"},
	{name: "logLevel", flag: levelFlag, fallback: "warn", set: setLevel,
		doc: "least level of the log on stderr: debug, info, warn or error"},
}

// reader makes settings, and collects what is wrong with them.
type reader struct {
	settings
	file  *configfile.File // of which flags are told too
	given map[string]bool  // the settings that somebody gave, by flag
}

// readSettings reads the file, if one is named, and lays the flags that were given, by name, over it. Its error says
// everything that is wrong, unless the file can't be read.
func readSettings(file string, flags map[string]string) (*settings, error) {
	r := &reader{file: &configfile.File{}, given: map[string]bool{}}
	if file != "" {
		if err := r.readFile(file); err != nil {
			return nil, fmt.Errorf("--%s: %w", configFlag, err)
		}
	}
	for _, f := range fields {
		if value, given := flags[f.flag]; given {
			r.given[f.flag] = true
			r.take(f, value)
		}
	}
	r.grpcWanted = r.given[grpcFlag]
	for _, f := range fields {
		if !r.given[f.flag] && f.fallback != "" {
			r.take(f, f.fallback)
		}
	}
	r.checkTogether()
	if err := r.file.Err(); err != nil {
		return nil, err
	}
	return &r.settings, nil
}

// take takes a flag's value, or its default.
func (r *reader) take(f field, value string) {
	if err := f.set(&r.settings, value); err != nil {
		r.file.AddFlag(f.flag, "%s", err)
	}
}

// checkTogether looks at what settings say together.
func (r *reader) checkTogether() {
	if !r.given[nodesFlag] {
		r.file.AddFlag(nodesFlag, "is required: whom to ask, as in --nodes 127.0.0.1:8081")
	}
	three := []string{caFlag, certFlag, keyFlag}
	missing := slices.DeleteFunc(slices.Clone(three), func(flag string) bool { return r.given[flag] })
	if len(missing) < len(three) {
		for _, flag := range missing {
			r.file.AddFlag(flag, "is missing: --ca, --cert and --key go together; give all three, here or in the file, or none")
		}
	}
}

func setNodes(s *settings, text string) error {
	s.nodes = nil
	var faults []error
	for address := range strings.SplitSeq(text, ",") {
		switch host, _, err := command.SplitAddress(address, 1); {
		case err != nil:
			faults = append(faults, err)
		case slices.Contains(s.nodes, address):
			faults = append(faults, fmt.Errorf("%q is given twice", address))
		case host == "":
			faults = append(faults, fmt.Errorf("%q has no host", address))
		}
		s.nodes = append(s.nodes, address)
	}
	return join(faults)
}

// join is one error of several, on one line.
func join(faults []error) error {
	texts := make([]string, len(faults))
	for i, f := range faults {
		texts[i] = f.Error()
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

func setAddress(of func(*settings) *string) func(*settings, string) error {
	return func(s *settings, text string) error {
		*of(s) = text
		_, _, err := command.SplitAddress(text, 0)
		return err
	}
}

func setFile(of func(*settings) *string) func(*settings, string) error {
	return func(s *settings, text string) error {
		*of(s) = text
		if text == "" {
			return errors.New("is empty; it is the name of a file")
		}
		return nil
	}
}

func setLevel(s *settings, text string) (err error) {
	s.level, err = command.ParseLevel(text)
	return err
}
