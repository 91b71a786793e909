package command_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/cmd/internal/command"
)

// TestTheExitStatusSaysWhoseFaultItIs, and what is wrong is said once.
func TestTheExitStatusSaysWhoseFaultItIs(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		args   []string
		err    error
		status int
		errs   string
	}{
		"done":            {},
		"wrong flag":      {[]string{"--nothing"}, nil, command.Usage, "tool: unknown flag: --nothing\nSee tool --help.\n"},
		"wrong value":     {nil, broken, command.Usage, "tool: broken\nSee tool --help.\n"},
		"failed":          {nil, command.Failed(broken), command.Failure, "tool: broken\n"},
		"failed within":   {nil, fmt.Errorf("while at it: %w", command.Failed(broken)), command.Failure, "tool: while at it: broken\n"},
		"nothing failed":  {nil, command.Failed(nil), command.OK, ""},
		"a status of its": {nil, &command.Error{Status: 3, Err: broken}, 3, "tool: broken\n"},
		"told already":    {nil, &command.Error{Status: 3}, 3, ""},
	} {
		root := &cobra.Command{Use: "tool", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return c.err }}
		var out, errs bytes.Buffer
		status := command.Run(t.Context(), root, c.args, &out, &errs)
		if status != c.status || errs.String() != c.errs || out.Len() > 0 {
			t.Errorf("%s: status %d, %q, %q", name, status, &errs, &out)
		}
		if errors.Is(c.err, broken) != (c.errs != "" && c.args == nil) {
			t.Errorf("%s: the error doesn't unwrap", name)
		}
	}
}
