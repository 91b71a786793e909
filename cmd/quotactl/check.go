package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/policy"
)

func newCheckCommand() *cobra.Command {
	var (
		t    target
		cost uint64
		id   string
	)
	cmd := &cobra.Command{
		Use:   "check [NAME=VALUE]...",
		Short: "Ask for admission, and take it if it is given",
		Long: `Ask for admission of one descriptor, and take it if it is given: an allow is
charged like any other.

Exit status: 0 allowed, 3 denied, 1 unavailable (no decision could be made or
reached), 2 wrong usage.`,
		Example: "  quotactl check --domain video-api principal=alice api_class=convert",
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := newCheckRequest(t.domain, cost, id, args)
			if err != nil {
				return err
			}
			if err := t.validate(); err != nil {
				return err
			}
			return t.ask(cmd.Context(), func(ctx context.Context, c *client.Conn) error {
				return check(ctx, c, request, cmd.OutOrStdout(), t.output)
			})
		},
	}
	t.addFlags(cmd)
	cmd.Flags().Uint64Var(&cost, "cost", 1, "units to take")
	cmd.Flags().StringVar(&id, "id", "", "decision id, 32 hex digits; an allow recorded under it is given again (default: a new one)")
	return cmd
}

func newCheckRequest(domain string, cost uint64, id string, args []string) (*quotav1.CheckRequest, error) {
	if cost == 0 {
		return nil, errors.New("--cost 0: not above 0; quotactl inspect takes nothing")
	}
	d, err := parseDescriptor(args)
	if err != nil {
		return nil, err
	}
	raw, err := hex.DecodeString(id)
	if err != nil || len(raw) != 0 && len(raw) != 16 {
		return nil, fmt.Errorf("--id %q: not 32 hex digits", id)
	}
	return &quotav1.CheckRequest{
		Domain: domain, Descriptors: []*quotav1.Descriptor{d}, Cost: cost, DecisionId: raw,
	}, nil
}

// check asks, shows the answer and returns its exit status.
func check(ctx context.Context, c *client.Conn, request *quotav1.CheckRequest, out io.Writer, output string) error {
	answer, err := c.Check(ctx, request)
	v := viewOf(answer, err)
	if output == outputJSON {
		if err := writeJSON(out, v); err != nil {
			return err
		}
	} else {
		v.print(out)
	}
	switch v.Decision {
	case allow:
		return nil
	case deny:
		return &command.Error{Status: exitDenied}
	}
	return &command.Error{Status: command.Failure}
}

const (
	allow       = "allow"
	deny        = "deny"
	unavailable = "unavailable"
)

// view is an answer as the HTTP front shows it: the same names, all of them, null where nothing applies.
type view struct {
	Decision     string  `json:"decision"`
	Reason       *string `json:"reason"`
	Message      *string `json:"message"`
	Policy       *string `json:"policy"`
	Limit        *uint64 `json:"limit"`
	LimitName    *string `json:"limit_name"`
	Remaining    *uint64 `json:"remaining"`
	RetryAfter   *int64  `json:"retry_after"`
	DecisionTime *int64  `json:"decision_time_ns"`
	Partition    *uint32 `json:"partition"`
	Epoch        *uint64 `json:"epoch"`
	Replayed     *bool   `json:"replayed"`
	ID           *string `json:"id"`

	window    int64
	reset     *int64
	unlimited bool
}

func viewOf(a *quotav1.Answer, err error) view {
	if err != nil {
		return unavailableView(err)
	}
	id := hex.EncodeToString(a.GetDecisionId())
	v := view{
		Decision: deny, Reason: text(wordOf(a.GetReason())),
		Policy: text(a.GetPolicy()), LimitName: text(a.GetLimitName()), Limit: a.Limit, Remaining: a.Remaining,
		RetryAfter: a.RetryAfterS, DecisionTime: &a.DecisionTimeNs, Partition: &a.Partition, Epoch: &a.Epoch,
		Replayed: &a.Replayed, ID: text(id), window: a.GetWindowNs(), reset: a.ResetNs, unlimited: a.GetUnlimited(),
	}
	if a.GetDecision() == quotav1.Decision_DECISION_ALLOW {
		v.Decision = allow
	}
	return v
}

func unavailableView(err error) view {
	v := view{Decision: unavailable, Message: text(err.Error())}
	var u *client.Unavailable
	if errors.As(err, &u) {
		v.Reason = text(wordOf(u.Reason))
		if wait := int64(u.RetryAfter / time.Second); wait > 0 {
			v.RetryAfter = &wait
		}
	}
	return v
}

// text is a string that is null if it is empty.
func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// print shows what there is, a line each.
func (v *view) print(out io.Writer) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("decision", "%s%s", v.Decision, v.because())
	if v.Message != nil {
		line("message", "%s", *v.Message)
	}
	if v.Policy != nil {
		line("policy", "%s", *v.Policy)
		line("limit", "%s", v.limit())
	}
	if v.Remaining != nil {
		line("remaining", "%d", *v.Remaining)
	}
	if v.RetryAfter != nil {
		line("wait", "%ds", *v.RetryAfter)
	}
	if v.reset != nil {
		line("full in", "%s", seconds(*v.reset))
	}
	if v.ID != nil {
		line("id", "%s", *v.ID)
	}
}

func (v *view) because() string {
	switch {
	case v.Replayed != nil && *v.Replayed:
		return " (replayed)"
	case v.Reason != nil:
		return " (" + *v.Reason + ")"
	}
	return ""
}

func (v *view) limit() string {
	amount := "unknown"
	if v.unlimited {
		amount = "unlimited"
	} else if v.Limit != nil {
		amount = fmt.Sprint(*v.Limit)
	}
	return fmt.Sprintf("%s, %s per %s", *v.LimitName, amount, policy.FormatDuration(v.window))
}
