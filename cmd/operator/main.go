// Command operator makes the RateLimitPolicies of a Kubernetes cluster those that the nodes of a Quorate cluster enforce.
package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	kubeconfig "sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/quorate/quorate/cmd/internal/command"
)

func main() {
	// A connection to the API server on which nothing comes is given up before the lease is.
	for name, seconds := range map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "8", "HTTP2_PING_TIMEOUT_SECONDS": "4"} {
		if os.Getenv(name) == "" {
			_ = os.Setenv(name, seconds) // the names are fine, which is all that could be wrong
		}
	}
	command.Main(func(ctx context.Context, args []string, out, errs io.Writer) int {
		p := program{out: out, errs: errs, getenv: os.Getenv, kube: kubeconfig.GetConfig}
		return p.run(ctx, args)
	})
}

// program is all that the command needs of the world.
type program struct {
	out, errs io.Writer
	getenv    func(string) string
	kube      func() (*rest.Config, error) // how the API server is reached
}

// run is the whole program until ctx ends.
func (p *program) run(ctx context.Context, args []string) int {
	return command.Run(ctx, p.newCommand(), args, p.out, p.errs)
}

func (p *program) newCommand() *cobra.Command {
	root := &cobra.Command{Use: "operator", Short: "Enforce the RateLimitPolicies of a Kubernetes cluster"}
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
			return command.Failed(p.serve(cmd.Context(), c))
		},
	}
	run.Flags().StringVar(&file, "config", "", "YAML file with the configuration")
	root.AddCommand(run)
	return root
}
