// Command quotanode runs a Quorate node. `quotanode run` runs one of a cluster; `quotanode dev` runs three and a
// gateway in one process.
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
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// From the first signal on the next one ends the process at once: whoever asks twice doesn't want to wait.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole program until ctx ends.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	root := newRootCommand(out, errs)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(errs, "quotanode: %v\n", err)
	if errors.As(err, new(*runError)) {
		return exitFailure
	}
	fmt.Fprintln(errs, "See quotanode --help.")
	return exitUsage
}

// runError is what went wrong although the command line was right.
type runError struct{ error }

// Unwrap is what went wrong.
func (e *runError) Unwrap() error { return e.error }

func newRootCommand(out, errs io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "quotanode",
		Short:         "A node of Quorate, the clustered rate limiter that never over-admits",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		// Without it cobra takes a misspelt command for a question for help: status 0.
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newDevCommand(out, errs), newRunCommand(out, func(ctx context.Context, c *runConfig) error {
		return runNode(ctx, c, out, errs)
	}))
	return root
}
