package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/cmd/internal/command"
)

// target is whom to ask, in which domain, and how to show the answer: what check and inspect share.
type target struct {
	server  string
	domain  string
	output  string
	timeout time.Duration
	tls     tlsFlags
}

const (
	outputText = "text"
	outputJSON = "json"
)

func (t *target) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&t.server, "server", "127.0.0.1:8081", "gRPC address of a node or a gateway")
	flags.StringVar(&t.domain, "domain", "", "domain of the descriptor (default: the only one)")
	flags.StringVarP(&t.output, "output", "o", outputText, "text or json")
	flags.DurationVar(&t.timeout, "timeout", 5*time.Second, "longest to wait for the answer")
	t.tls.addFlags(cmd)
}

func (t *target) validate() error {
	switch {
	case t.output != outputText && t.output != outputJSON:
		return fmt.Errorf("--output %q: not one of text, json", t.output)
	case t.timeout <= 0:
		return fmt.Errorf("--timeout %v: not above 0", t.timeout)
	}
	return t.tls.validate()
}

// ask dials and calls f; what fails before f is a failure, not wrong usage.
func (t *target) ask(ctx context.Context, f func(context.Context, *client.Conn) error) error {
	config, err := t.tls.config(decides(t.domain))
	if err != nil {
		return command.Failed(err)
	}
	c, err := client.Dial(t.server, config)
	if err != nil {
		return command.Failed(fmt.Errorf("--server: %w", err))
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	err = f(ctx, c)
	if closing := c.Close(); closing != nil && err == nil {
		return command.Failed(closing)
	}
	return err
}

// parseDescriptor reads NAME=VALUE arguments.
func parseDescriptor(args []string) (*quotav1.Descriptor, error) {
	d := &quotav1.Descriptor{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not NAME=VALUE", arg)
		}
		d.Entries = append(d.Entries, &quotav1.Entry{Name: name, Value: []byte(value)})
	}
	return d, nil
}

// wordOf is the word of a reason, as the HTTP front says it: REASON_NO_POLICY is no_policy.
func wordOf(reason fmt.Stringer) string {
	word := strings.ToLower(reason.String())
	word = strings.TrimPrefix(strings.TrimPrefix(word, "failure_"), "reason_")
	if word == "unspecified" {
		return ""
	}
	return strings.TrimSuffix(word, "_allowed")
}

// seconds shows nanoseconds as whole seconds, rounded up: a wait is never told too short.
func seconds(ns int64) string {
	const second = int64(time.Second)
	whole := ns / second
	if ns%second > 0 {
		whole++
	}
	return fmt.Sprintf("%ds", whole)
}

func writeJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return command.Failed(fmt.Errorf("write the answer: %w", err))
	}
	return nil
}
