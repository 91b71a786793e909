// Command operator makes the RateLimitPolicies of a Kubernetes cluster those that the nodes of a Quorate cluster enforce.
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
	"k8s.io/client-go/rest"
	kubeconfig "sigs.k8s.io/controller-runtime/pkg/client/config"
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
	// A connection to the API server on which nothing comes is given up before the lease is.
	for name, seconds := range map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "8", "HTTP2_PING_TIMEOUT_SECONDS": "4"} {
		if os.Getenv(name) == "" {
			_ = os.Setenv(name, seconds) // the names are fine, which is all that could be wrong
		}
	}
	p := program{out: os.Stdout, errs: os.Stderr, getenv: os.Getenv, kube: kubeconfig.GetConfig}
	os.Exit(p.run(ctx, os.Args[1:]))
}

// program is all that the command needs of the world.
type program struct {
	out, errs io.Writer
	getenv    func(string) string
	kube      func() (*rest.Config, error) // how the API server is reached
}

// run is the whole program until ctx ends.
func (p *program) run(ctx context.Context, args []string) int {
	root := p.newCommand()
	root.SetArgs(args)
	root.SetOut(p.out)
	root.SetErr(p.errs)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(p.errs, "operator: %v\n", err)
	if errors.As(err, new(*runError)) {
		return exitFailure
	}
	fmt.Fprintln(p.errs, "See operator run --help.")
	return exitUsage
}

// runError is what went wrong although the configuration was right.
type runError struct{ error }

func (p *program) newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "operator",
		Short:         "Enforce the RateLimitPolicies of a Kubernetes cluster",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	var file string
	run := &cobra.Command{
		Use:   "run --config FILE",
		Short: "Run the operator",
		Long: `Make the RateLimitPolicies of a Kubernetes cluster (ratelimitpolicies.quorate.dev) those
that the nodes of a Quorate cluster enforce, and say in their statuses what became of
them. It finds the API server as kubectl does: by the environment variable KUBECONFIG,
or from within a pod by itself.

Exit status: 0 after SIGINT or SIGTERM, 1 when it can't go on, 2 for wrong usage or a
configuration that is wrong.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := readConfig(file, p.getenv)
			if err != nil {
				return err
			}
			if err := p.serve(cmd.Context(), c); err != nil {
				return &runError{err}
			}
			return nil
		},
	}
	run.Flags().StringVar(&file, "config", "", "YAML file with the configuration")
	root.AddCommand(run)
	return root
}
