// Command gateway is the sidecar that asks a Quorate cluster for admission, beside whoever needs it: HTTP
// /check and the gRPC service Quota, over a client that knows the nodes.
package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/gateway"
)

func main() {
	command.Main(func(ctx context.Context, args []string, out, errs io.Writer) int {
		p := program{out: out, errs: errs, connect: connect}
		return p.run(ctx, args)
	})
}

// asker is the client that the gateway asks, and closes at the end.
type asker interface {
	gateway.Asker
	Close()
}

func connect(cfg client.Config) (asker, error) {
	c, err := client.New(cfg)
	if err != nil {
		return nil, err // and no client, rather than one that is nil
	}
	return c, nil
}

// program is all that the command needs of the world.
type program struct {
	out, errs io.Writer
	connect   func(client.Config) (asker, error)
}

// run is the whole program until ctx ends.
func (p *program) run(ctx context.Context, args []string) int {
	return command.Run(ctx, p.newCommand(), args, p.out, p.errs)
}

func (p *program) newCommand() *cobra.Command {
	var config string
	root := &cobra.Command{
		Use:   "gateway --nodes HOST:PORT,...",
		Short: "Ask a Quorate cluster for admission, over HTTP and gRPC",
		Long: `Answer checks over HTTP (/check) and gRPC beside whoever asks, by asking the nodes
of a Quorate cluster. It decides nothing and holds no allowance: what it can't have
decided in time is unavailable, which is not an allow.

The HTTP front is for callers on this machine. With --ca, --cert and --key nodes are
asked with that certificate. Callers over gRPC are shown it too, so it has to be issued
for servers as well (serverAuth), and need a gateway's certificate themselves. Without
them nodes and callers are on this machine. The files may be replaced while it runs: all
three together. Metrics and health need no certificate.

Each flag but --config can be given in a YAML file as well, as in httpAddress: a flag
wins over the file.

Exit status: 0 after SIGINT or SIGTERM, 1 when it can't go on, 2 for wrong usage.`,
		Args: cobra.NoArgs,
	}
	flags := root.Flags()
	flags.StringVar(&config, configFlag, "", "YAML file with what the other flags say")
	given := map[string]*string{}
	for _, f := range fields {
		given[f.flag] = flags.String(f.flag, f.fallback, f.doc)
	}
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		values := map[string]string{}
		for name, value := range given {
			if cmd.Flags().Changed(name) {
				values[name] = *value
			}
		}
		s, err := readSettings(config, values)
		if err != nil {
			return err
		}
		return command.Failed(p.serve(cmd.Context(), s))
	}
	return root
}
