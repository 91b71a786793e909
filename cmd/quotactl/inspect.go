package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

func newInspectCommand() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "inspect [NAME=VALUE]...",
		Short: "Show what a descriptor has used and has left, and take nothing",
		Long: `Show what a descriptor has used and has left of each limit of the policy that it
matches, and take nothing.

Exit status: 0 shown, 1 unavailable, 2 wrong usage.`,
		Example: "  quotactl inspect --domain video-api principal=alice api_class=convert",
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := parseDescriptor(args)
			if err != nil {
				return err
			}
			if err := t.validate(); err != nil {
				return err
			}
			request := &quotav1.InspectRequest{Domain: t.domain, Descriptor_: d}
			return t.ask(cmd.Context(), func(ctx context.Context, c *client.Conn) error {
				return inspect(ctx, c, request, cmd.OutOrStdout(), t.output)
			})
		},
	}
	t.addFlags(cmd)
	return cmd
}

func inspect(ctx context.Context, c *client.Conn, request *quotav1.InspectRequest, out io.Writer, output string) error {
	found, err := c.Inspect(ctx, request)
	if err != nil {
		return command.Failed(err)
	}
	if output == outputJSON {
		return writeJSON(out, usageOf(found))
	}
	if len(found.GetLimits()) == 0 {
		fate := "denied"
		if found.GetReason() == quotav1.Reason_REASON_NO_MATCH_ALLOWED {
			fate = "allowed"
		}
		fmt.Fprintf(out, "no limit applies: every such check is %s (%s)\n", fate, wordOf(found.GetReason()))
		return nil
	}
	return printUsage(out, found.GetLimits())
}

// usage is what Inspect says, with the names of a check's answer.
type usage struct {
	Reason       *string      `json:"reason"`
	DecisionTime int64        `json:"decision_time_ns"`
	Partition    uint32       `json:"partition"`
	Epoch        uint64       `json:"epoch"`
	Limits       []limitUsage `json:"limits"`
}

type limitUsage struct {
	Policy    string  `json:"policy"`
	LimitName string  `json:"limit_name"`
	Algorithm string  `json:"algorithm"`
	Limit     *uint64 `json:"limit"`
	Used      uint64  `json:"used"`
	Left      *uint64 `json:"left"`
	Window    int64   `json:"window_ns"`
	FullIn    *int64  `json:"full_in_ns"`
}

func usageOf(r *quotav1.InspectResponse) usage {
	u := usage{
		Reason: text(wordOf(r.GetReason())), DecisionTime: r.GetDecisionTimeNs(),
		Partition: r.GetPartition(), Epoch: r.GetEpoch(), Limits: []limitUsage{},
	}
	for _, l := range r.GetLimits() {
		u.Limits = append(u.Limits, limitUsage{
			Policy: l.GetPolicy(), LimitName: l.GetLimitName(), Algorithm: algorithmOf(l), Limit: l.Limit,
			Used: l.GetUsed(), Left: l.Left, Window: l.GetWindowNs(), FullIn: l.FullInNs,
		})
	}
	return u
}

func printUsage(out io.Writer, limits []*quotav1.LimitUsage) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "POLICY\tLIMIT\tALGORITHM\tUSED\tLEFT\tOF\tPER\tFULL IN")
	for _, l := range limits {
		left, of, full := "unlimited", "unlimited", "-"
		if !l.GetUnlimited() {
			left, of, full = fmt.Sprint(l.GetLeft()), fmt.Sprint(l.GetLimit()), "never"
			if l.FullInNs != nil {
				full = seconds(l.GetFullInNs())
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", l.GetPolicy(), l.GetLimitName(), algorithmOf(l),
			l.GetUsed(), left, of, policy.FormatDuration(l.GetWindowNs()), full)
	}
	if err := table.Flush(); err != nil {
		return command.Failed(fmt.Errorf("write the table: %w", err))
	}
	return nil
}

// algorithmOf is the law's name as a policy spells it: the wire has the numbers of package limit.
func algorithmOf(l *quotav1.LimitUsage) string { return limit.Algorithm(l.GetAlgorithm()).String() }
