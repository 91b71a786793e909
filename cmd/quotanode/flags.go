package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/policy/file"
)

//go:embed sample.yaml
var sample []byte

// Names of flags that messages mention.
const (
	httpFlag    = "http-address"
	grpcFlag    = "grpc-address"
	metricsFlag = "metrics-address"
)

// options are the flags of `quotanode dev` as they were given.
type options struct {
	dataDir  string
	policies string // file; empty: the sample
	http     string
	grpc     string
	metrics  string
	logLevel string
}

func newDevCommand(out, errs io.Writer) *cobra.Command {
	var o options
	dev := &cobra.Command{
		Use:   "dev",
		Short: "Run three nodes and a gateway in one process",
		Long: `Run three durable nodes and a gateway, with its HTTP front and its gRPC service, in
one process, to try Quorate and to develop against it. It listens on this machine
only.

What was admitted is kept in the data directory: a process that is killed and
started again has forgotten nothing. A node whose folder is gone stays out and is
reported; while two of the three are there, every promise holds, and with fewer
every check is unavailable. A start with other policies changes them, as
quotactl policies apply does.

Exit status: 0 after SIGINT or SIGTERM, 1 when it can't go on, 2 for wrong usage.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := o.validate(errs)
			if err != nil {
				return err
			}
			return s.run(cmd.Context(), out)
		},
	}
	flags := dev.Flags()
	flags.StringVar(&o.dataDir, "data-dir", "./quorate-dev", "directory with a folder for each replica; made if it isn't there")
	flags.StringVar(&o.policies, "policies", "", "policy file (default: three per 60 s and principal, in the domain video-api)")
	flags.StringVar(&o.http, httpFlag, "127.0.0.1:8080", "address of the HTTP front; port 0: any free one")
	flags.StringVar(&o.grpc, grpcFlag, "127.0.0.1:8081", "address of the gRPC service")
	flags.StringVar(&o.metrics, metricsFlag, "127.0.0.1:8082", "address of metrics and health")
	flags.StringVar(&o.logLevel, "log-level", "warn", "least level of the log on stderr: debug, info, warn or error")
	return dev
}

// validate turns options into settings, or says what is wrong with them.
func (o *options) validate(errs io.Writer) (*settings, error) {
	level, err := command.ParseLevel(o.logLevel)
	if err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	if o.dataDir == "" {
		return nil, fmt.Errorf("--data-dir: is empty")
	}
	set, err := o.readPolicies()
	if err != nil {
		return nil, fmt.Errorf("--policies: %w", err)
	}
	return &settings{
		options: *o, set: set,
		log: slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: level})),
	}, nil
}

func (o *options) readPolicies() (policy.Set, error) {
	if o.policies == "" {
		return file.Read("sample.yaml", bytes.NewReader(sample))
	}
	return file.ReadFile(o.policies)
}
