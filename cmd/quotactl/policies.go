package main

import (
	"encoding/hex"
	"fmt"
	"io"

	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/policy/file"
	"github.com/spf13/cobra"
)

// errInvalid is what `policies validate` returns once it has printed why: exit status 1, nothing more to
// say. Every other error of the command is one of usage: status 2.
var errInvalid error = &command.Error{Status: command.Failure}

// newPoliciesCommand returns the commands that work on policies, in files and in force.
func newPoliciesCommand() *cobra.Command {
	policies := &cobra.Command{
		Use:   "policies",
		Short: "Check policy files, put them in force, show what is in force",
		Args:  cobra.NoArgs,
		// Without it cobra takes a misspelt subcommand for a question for help: status 0.
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	policies.AddCommand(&cobra.Command{
		Use:   "validate FILE...",
		Short: "Check policy files as nodes do",
		Long: "Check policy files as nodes do: each by itself, all that is wrong with it at once, with lines.\n" +
			"Exit status 0: all are fine; 1: one is not, or can't be read; 2: wrong usage.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			cmd.SilenceUsage, cmd.SilenceErrors = true, true
			return validatePolicies(cmd.OutOrStdout(), cmd.ErrOrStderr(), paths)
		},
	})
	policies.AddCommand(newApplyCommand(), newListCommand())
	return policies
}

func validatePolicies(out, problems io.Writer, paths []string) error {
	var result error
	for _, path := range paths {
		summary, warnings, err := describePolicies(path)
		for _, w := range warnings {
			if _, err := fmt.Fprintf(problems, "%s: warning: %s\n", path, w); err != nil {
				return err
			}
		}
		if err != nil {
			result = errInvalid
			_, err = fmt.Fprintln(problems, err)
		} else {
			_, err = fmt.Fprintf(out, "%s: %s\n", path, summary)
		}
		if err != nil {
			return err
		}
	}
	return result
}

func describePolicies(path string) (summary string, warnings policy.Problems, err error) {
	set, err := file.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	compiled, err := policy.Compile(set)
	if err != nil {
		return "", nil, err
	}
	hash := set.Hash()
	return fmt.Sprintf("ok, %s, %s, set %s",
		count(compiled.Policies(), "policy", "policies"),
		count(compiled.Domains(), "domain", "domains"),
		hex.EncodeToString(hash[:6])), set.Warnings(), nil
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
