package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/policy/file"
)

// application is one use of `policies apply`.
type application struct {
	cluster  cluster
	expected string
	dryRun   bool
}

func newApplyCommand() *cobra.Command {
	var a application
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Put a policy file in force, whole or not at all",
		Long: `Put a policy file in the place of the policies in force, whole or not at all, and wait
until all partitions enforce it. FILE - is standard input. The same file again changes
nothing. Usage is kept: what was used up stays so under the new policies.

Exit status: 0 in force in all partitions (with --dry-run: it would be accepted); 1 it
was refused, no node took it, or not all partitions enforce it yet; 2 wrong usage.`,
		Example: "  quotactl policies apply policies.yaml --dry-run\n  quotactl policies apply policies.yaml --expected 1.6",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := a.options()
			if err != nil {
				return err
			}
			text, err := readPolicies(args[0], cmd.InOrStdin())
			if err != nil {
				return command.Failed(err)
			}
			return a.cluster.ask(cmd.Context(), func(ctx context.Context, admin *client.Admin) error {
				r, err := admin.Apply(ctx, text, options)
				if err != nil {
					return a.refusal(err)
				}
				locate(text, r)
				return showApplied(cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0], options, r)
			})
		},
	}
	a.cluster.addFlags(cmd, 30*time.Second)
	cmd.Flags().StringVar(&a.expected, "expected", "", "version that has to be in force, EPOCH.NUMBER as list shows it, 0.0: none yet (default: whichever)")
	cmd.Flags().BoolVar(&a.dryRun, "dry-run", false, "only say what would be refused")
	return cmd
}

func (a *application) options() (*quotav1.ApplyOptions, error) {
	if err := a.cluster.validate(); err != nil {
		return nil, err
	}
	options := &quotav1.ApplyOptions{DryRun: a.dryRun}
	if a.expected == "" {
		return options, nil
	}
	v, err := client.ParseVersion(a.expected)
	if err != nil {
		return nil, fmt.Errorf("--expected %w", err)
	}
	options.Expected = v.Message()
	return options, nil
}

func (a *application) refusal(err error) error {
	var e *client.NodeError
	if errors.As(err, &e) && e.Conflict() {
		return command.Failed(fmt.Errorf("%w; look at it by quotactl policies list, and apply again if that is still right", err))
	}
	return a.cluster.refusal(err)
}

func readPolicies(path string, in io.Reader) (text []byte, err error) {
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // nothing was written
		in = f
	}
	text, err = io.ReadAll(io.LimitReader(in, client.MaxPolicyBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", path, err)
	case len(text) > client.MaxPolicyBytes:
		return nil, fmt.Errorf("%s: larger than %d bytes, which is all that a cluster takes", path, client.MaxPolicyBytes)
	}
	return text, nil
}

// locate adds the lines of the file where the node knows none: what it has against a set in view of the one that is in
// force it finds in the set, not in the text.
func locate(text []byte, r *quotav1.ApplyPoliciesResponse) {
	places := sync.OnceValue(func() *file.Places { return file.Locate(text) })
	for _, p := range slices.Concat(r.GetWarnings(), r.GetProblems()) {
		if p.GetLine() == 0 && (p.GetPolicy() != "" || p.GetField() != "") {
			p.Line = uint32(places().Line(p.GetPolicy(), p.GetField()))
		}
	}
}

// showApplied shows what became of the file and ends with its exit status.
func showApplied(out, errs io.Writer, path string, options *quotav1.ApplyOptions, r *quotav1.ApplyPoliciesResponse) error {
	for _, w := range r.GetWarnings() {
		fmt.Fprintln(errs, problemLine(path, "warning: ", w))
	}
	for _, p := range r.GetProblems() {
		fmt.Fprintln(errs, problemLine(path, "", p))
	}
	version, set := versionOf(r.GetVersion()), setName(r.GetSetHash())
	if n := len(r.GetProblems()); n > 0 {
		return command.Failed(fmt.Errorf("%s is refused, for %s; in force is still version %s", path, count(n, "reason", "reasons"), version))
	}
	if options.GetDryRun() {
		fmt.Fprintf(out, "%s: would be accepted; in force is version %s%s\n", path, version, set)
		return nil
	}
	changed := "unchanged"
	if r.GetChanged() {
		changed = "changed"
	}
	fmt.Fprintf(out, "%s: version %s, %s%s\n", path, version, changed, set)
	if r.GetVersion() == nil {
		return command.Failed(errors.New("the node names no version: take the policies for not applied"))
	}
	if behind := showEnforced(out, r.GetVersion(), r.GetPartitions()); behind > 0 {
		return command.Failed(fmt.Errorf("version %s is accepted, and %s will enforce it: quotactl policies list shows when", version,
			count(behind, "more partition", "more partitions")))
	}
	return nil
}

// problemLine is as `policies validate` writes it, so that editors find the place.
func problemLine(path, kind string, p *quotav1.PolicyProblem) string {
	line := path + ": "
	if p.GetLine() > 0 {
		line = fmt.Sprintf("%s:%d: ", path, p.GetLine())
	}
	line += kind
	for _, part := range []string{p.GetPolicy(), p.GetField()} {
		if part != "" {
			line += part + ": "
		}
	}
	return printable(line + p.GetReason())
}

func setName(hash []byte) string {
	const enough = 6
	if len(hash) < enough {
		return ""
	}
	return ", set " + hex.EncodeToString(hash[:enough])
}

// showEnforced says how many partitions enforce the version or a later one, which do not, and returns how
// many those are.
func showEnforced(out io.Writer, version *quotav1.SetVersion, partitions []*quotav1.PartitionVersion) (behind int) {
	var lines []string
	for _, p := range partitions {
		if client.VersionOf(p.GetVersion()).Before(client.VersionOf(version)) {
			lines = append(lines, fmt.Sprintf("partition %d enforces %s", p.GetPartition(), versionOf(p.GetVersion())))
		}
	}
	fmt.Fprintf(out, "enforced by %d of %s\n", len(partitions)-len(lines), count(len(partitions), "partition", "partitions"))
	const enough = 20
	for i, line := range lines {
		if i == enough {
			fmt.Fprintf(out, "and %d more\n", len(lines)-i)
			break
		}
		fmt.Fprintln(out, line)
	}
	return len(lines)
}
