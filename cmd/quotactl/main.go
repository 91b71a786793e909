// Command quotactl is Quorate's tool for people: it asks a node for admission, looks at what is used up and
// at the cluster, checks, applies and lists policies, replays access logs, and makes certificates to try with.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// The exit statuses.
const (
	exitOK      = 0 // allowed; or done
	exitFailure = 1 // unavailable; or it didn't work
	exitUsage   = 2
	exitDenied  = 3
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole program.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	return runRoot(ctx, newRootCommand(), args, out, errs)
}

func runRoot(ctx context.Context, root *cobra.Command, args []string, out, errs io.Writer) int {
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	var end *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errInvalid): // which has said why
		return exitFailure
	case errors.As(err, &end):
		if end.error != nil {
			fmt.Fprintf(errs, "quotactl: %v\n", end.error)
		}
		return end.status
	}
	fmt.Fprintf(errs, "quotactl: %v\nSee quotactl --help.\n", err)
	return exitUsage
}

// exitError ends the program with a status of its own; a nil error has been told already. Every other
// error of a command is one of usage.
type exitError struct {
	error
	status int
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "quotactl",
		Short:         "The tool for people of Quorate, the clustered rate limiter that never over-admits",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		// Without it cobra takes a misspelt command for a question for help: status 0.
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newCheckCommand(), newInspectCommand(), newStatusCommand(), newPoliciesCommand(), newReplayCommand(), newGensampleCommand(), newCertsCommand())
	return root
}
