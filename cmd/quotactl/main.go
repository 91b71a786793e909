// Command quotactl is Quorate's tool for people: it asks a node for admission, looks at what is used up and
// at the cluster, checks, applies and lists policies, replays access logs, and makes certificates to try with.
package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/cmd/internal/command"
)

// exitDenied is the exit status of a check that is denied. An allow is success, and what is unavailable a failure.
const exitDenied = 3

func main() { command.Main(run) }

// run is the whole program.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	return command.Run(ctx, newRootCommand(), args, out, errs)
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "quotactl",
		Short: "The tool for people of Quorate, the clustered rate limiter that never over-admits",
		Args:  cobra.NoArgs,
		// Without it cobra takes a misspelt command for a question for help: status 0.
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(newCheckCommand(), newInspectCommand(), newStatusCommand(), newPoliciesCommand(), newReplayCommand(), newGensampleCommand(), newCertsCommand())
	return root
}
