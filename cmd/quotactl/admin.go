package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/access"
)

// cluster is whom to ask about a cluster, or to give policies.
type cluster struct {
	servers []string
	timeout time.Duration
	tls     tlsFlags
}

func (c *cluster) addFlags(cmd *cobra.Command, timeout time.Duration) {
	flags := cmd.Flags()
	flags.StringSliceVar(&c.servers, "server", []string{"127.0.0.1:8081"}, "gRPC addresses of nodes; the first that answers is asked")
	flags.DurationVar(&c.timeout, "timeout", timeout, "longest to wait for the answer")
	c.tls.addFlags(cmd)
}

func (c *cluster) validate() error {
	switch {
	case len(c.servers) == 0:
		return errors.New("--server: names none")
	case c.timeout <= 0:
		return fmt.Errorf("--timeout %v: not above 0", c.timeout)
	}
	return c.tls.validate()
}

// ask calls f. What fails is a failure, not wrong usage.
func (c *cluster) ask(ctx context.Context, f func(context.Context, *client.Admin) error) error {
	config, err := c.tls.config(access.IsPeer)
	if err != nil {
		return command.Failed(err)
	}
	admin, err := client.NewAdmin(c.servers, config)
	if err != nil {
		return command.Failed(fmt.Errorf("--server: %w", err))
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err = f(ctx, admin)
	if closing := admin.Close(); closing != nil && err == nil {
		return command.Failed(closing)
	}
	return err
}

// refusal is an error of a node, with what to do about it where there is something.
func (c *cluster) refusal(err error) error {
	var e *client.NodeError
	if errors.As(err, &e) {
		switch {
		case e.Denied():
			err = fmt.Errorf("%w; give a certificate with the right to it by --ca, --cert and --key", err)
		case e.Late():
			err = fmt.Errorf("%w; nothing came within --timeout %v", err, c.timeout)
		}
	}
	return command.Failed(err)
}

// versionOf writes a set's version as --expected reads it.
func versionOf(v *quotav1.SetVersion) string {
	if v == nil {
		return "none"
	}
	return client.VersionOf(v).String()
}

// printable is a text that came over the wire, without what a terminal would obey.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || '\x7f' <= c && c < '\xa0' {
			return '?'
		}
		return c
	}, text)
}

// column is such a text, cut to a column's width.
func column(text string, width int) string {
	runes := []rune(printable(text))
	if len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	if len(runes) == 0 {
		return "-"
	}
	return string(runes)
}
