package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/access"
)

// newRunCommand returns `quotanode run`. Start runs a node until its context ends; what it returns is a
// [*command.Error], or nil.
func newRunCommand(out io.Writer, start func(context.Context, *runConfig) error) *cobra.Command {
	var (
		file  string
		check bool
	)
	run := &cobra.Command{
		Use:   "run",
		Short: "Run a node of a cluster",
		Long: `Run this machine's node of a cluster, as the configuration file says; flags win
over the file. The file names all initial nodes, and the cluster begins when all of
them are there.

Without certificates a node is reachable from its own machine only, but for metrics
and health.

Exit status: 0 after SIGINT or SIGTERM, or if --check finds nothing wrong; 1 when it
can't go on; 2 for wrong usage or a configuration that is not right.`,
		Example: "  quotanode run --config n1.yaml --check\n  quotanode run --config n1.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadRunConfig(file, givenFlags(cmd))
			if err != nil {
				return err
			}
			if check {
				return c.report(out, time.Now)
			}
			return start(cmd.Context(), c)
		},
	}
	flags := run.Flags()
	flags.SortFlags = false
	flags.StringVar(&file, configFlag, "", "configuration file, YAML; relative paths in it start from its folder")
	flags.BoolVar(&check, "check", false, "only say whether the configuration is right, and what it comes to")
	for _, f := range configFields {
		if f.flag != "" {
			flags.String(f.flag, "", f.help())
		}
	}
	return run
}

// givenFlags are those of the command line that stand for fields.
func givenFlags(cmd *cobra.Command) map[string]string {
	given := map[string]string{}
	for _, f := range configFields {
		if flag := cmd.Flags().Lookup(f.flag); flag != nil && flag.Changed {
			given[f.flag] = flag.Value.String()
		}
	}
	return given
}

// help is what a field's flag says of it. To the library a word in back quotes is the name of a value.
func (f *configField) help() string {
	return fmt.Sprintf("%s (in the file: %s)", strings.ReplaceAll(f.doc, "`", ""), f.path)
}

// report says that the configuration is right, certificates included, and what it comes to.
func (c *runConfig) report(out io.Writer, now func() time.Time) error {
	if c.TLS.CA != "" {
		if _, err := access.Open(c.TLS, now, access.IsNode(c.Name)); err != nil {
			return fmt.Errorf("tls: %w", err)
		}
	}
	if _, err := fmt.Fprintln(out, "ok"); err != nil {
		return command.Failed(err)
	}
	if err := c.show(out); err != nil {
		return command.Failed(err)
	}
	return nil
}
