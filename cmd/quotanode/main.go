// Command quotanode runs a Quorate node. `quotanode run` runs one of a cluster; `quotanode dev` runs three and a
// gateway in one process.
package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/cmd/internal/command"
)

func main() { command.Main(run) }

// run is the whole program until ctx ends.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	return command.Run(ctx, newRootCommand(out, errs), args, out, errs)
}

func newRootCommand(out, errs io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "quotanode",
		Short: "A node of Quorate, the clustered rate limiter that never over-admits",
		Args:  cobra.NoArgs,
		// Without it cobra takes a misspelt command for a question for help: status 0.
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(newDevCommand(out, errs), newRunCommand(out, func(ctx context.Context, c *runConfig) error {
		return runNode(ctx, c, out, errs)
	}))
	return root
}
