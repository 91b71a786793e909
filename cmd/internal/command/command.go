// Package command has each of the programs run, and end, in the same way.
package command

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

// The exit statuses that all programs have.
const (
	OK      = 0
	Failure = 1
	Usage   = 2 // of the command line, or of what it names
)

// Main ends the process with the status of run, which it gives the process's arguments and streams. The context ends with the first
// SIGINT or SIGTERM. The next one ends the process at once: whoever asks twice doesn't want to wait.
func Main(run func(ctx context.Context, args []string, out, errs io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Error ends a program with a status of its own. Every other error of a command is one of usage.
type Error struct {
	Status int
	Err    error // nil: it has been told already
}

// Error is for people; empty: they know.
func (e *Error) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap is what went wrong.
func (e *Error) Unwrap() error { return e.Err }

// Failed is what went wrong although the command was right; nil: nothing did.
func Failed(err error) error {
	if err == nil {
		return nil
	}
	return &Error{Failure, err}
}

// Run runs a command, says on errs what went wrong, and returns the exit status.
func Run(ctx context.Context, root *cobra.Command, args []string, out, errs io.Writer) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return OK
	}
	if text := err.Error(); text != "" {
		fmt.Fprintf(errs, "%s: %s\n", root.Name(), text)
	}
	var own *Error
	if errors.As(err, &own) {
		return own.Status
	}
	fmt.Fprintf(errs, "See %s --help.\n", root.Name())
	return Usage
}
