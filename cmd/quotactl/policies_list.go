package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/policy/file"
)

const outputYAML = "yaml"

func newListCommand() *cobra.Command {
	var (
		c      cluster
		output string
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the policies in force, and which version each partition enforces",
		Long: `Show the policies in force, and which version each partition enforces. -o yaml shows
them in full, as a file that can be applied again; -o json too, with all versions.

Exit status: 0 shown, 1 no node answers, 2 wrong usage.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != outputText && output != outputJSON && output != outputYAML {
				return fmt.Errorf("--output %q: not one of text, yaml, json", output)
			}
			if err := c.validate(); err != nil {
				return err
			}
			return c.ask(cmd.Context(), func(ctx context.Context, admin *client.Admin) error {
				var l listing
				var err error
				if l.canonical, l.version, l.partitions, err = admin.Policies(ctx, nil); err != nil {
					return c.refusal(err)
				}
				if err := l.show(cmd.OutOrStdout(), output); err != nil {
					return command.Failed(err)
				}
				return nil
			})
		},
	}
	c.addFlags(cmd, 5*time.Second)
	cmd.Flags().StringVarP(&output, "output", "o", outputText, "text, yaml or json")
	return cmd
}

// listing is what a cluster enforces.
type listing struct {
	canonical  []byte // nil: nothing yet
	version    *quotav1.SetVersion
	partitions []*quotav1.PartitionVersion
}

func (l *listing) show(out io.Writer, output string) error {
	switch output {
	case outputJSON:
		return l.showJSON(out)
	case outputYAML:
		return l.showYAML(out)
	}
	return l.showText(out)
}

func (l *listing) setHash() []byte {
	if l.canonical == nil {
		return nil
	}
	hash := sha256.Sum256(l.canonical)
	return hash[:]
}

// heading says what is in force, and where.
func (l *listing) heading(out io.Writer) {
	if l.version == nil {
		fmt.Fprintln(out, "no policies yet")
		return
	}
	fmt.Fprintf(out, "version %s%s\n", versionOf(l.version), setName(l.setHash()))
	showEnforced(out, l.version, l.partitions)
}

func (l *listing) showJSON(out io.Writer) error {
	v := struct {
		Version    *versionView           `json:"version"`
		SetHash    *string                `json:"set_hash"`
		Partitions []partitionVersionView `json:"partitions"`
		Policies   json.RawMessage        `json:"policies"`
	}{viewOfVersion(l.version), text(hex.EncodeToString(l.setHash())), []partitionVersionView{}, l.canonical}
	for _, p := range l.partitions {
		v.Partitions = append(v.Partitions, partitionVersionView{p.GetPartition(), viewOfVersion(p.GetVersion())})
	}
	return writeJSON(out, v)
}

type partitionVersionView struct {
	Partition uint32       `json:"partition"`
	Version   *versionView `json:"version"`
}

// showYAML writes a policy file, with the versions as comments.
func (l *listing) showYAML(out io.Writer) error {
	var heading bytes.Buffer
	l.heading(&heading)
	for line := range strings.Lines(heading.String()) {
		fmt.Fprint(out, "# "+line)
	}
	body := []byte("policies: []\n")
	if l.canonical != nil {
		body = policyFile(l.canonical)
	}
	_, err := out.Write(body)
	return err
}

// policyFile is a set as people write it. Where that can't be shown to say the same, of a set that this
// version doesn't know in full above all, it is the JSON, which is YAML too.
func policyFile(canonical []byte) []byte {
	asJSON := append(bytes.Clone(canonical), '\n')
	var root yaml.Node
	if err := yaml.Unmarshal(canonical, &root); err != nil {
		return asJSON
	}
	relax(&root)
	var pretty bytes.Buffer
	e := yaml.NewEncoder(&pretty)
	e.SetIndent(2)
	if err := e.Encode(&root); err != nil {
		return asJSON
	}
	set, err := file.Read("the set", bytes.NewReader(pretty.Bytes()))
	if err != nil || !bytes.Equal(set.Canonical(), canonical) {
		return asJSON
	}
	return pretty.Bytes()
}

// relax drops JSON's braces and quotes where YAML needs none; small things stay on one line.
func relax(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode || !isOldYAML(n.Value) {
		n.Style = 0
	}
	for _, c := range n.Content {
		relax(c)
	}
	if n.Kind == yaml.SequenceNode && !holdsCollections(n) || n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		n.Style = yaml.FlowStyle
	}
}

// isOldYAML says that text, without quotes, is no string to those who read YAML 1.1.
func isOldYAML(text string) bool {
	switch strings.ToLower(text) {
	case "y", "n", "yes", "no", "on", "off":
		return true
	}
	return strings.Contains(text, ":") // 1:30 is 90
}

func holdsCollections(n *yaml.Node) bool {
	for _, c := range n.Content {
		if c.Kind != yaml.ScalarNode {
			return true
		}
	}
	return false
}

// showText has a line for each limit.
func (l *listing) showText(out io.Writer) error {
	l.heading(out)
	if l.canonical == nil {
		return nil
	}
	set, err := policy.ParseCanonical(l.canonical)
	if err != nil {
		return fmt.Errorf("this version of quotactl can't read the policies, -o json shows them as they are: %w", err)
	}
	if len(set.Policies) == 0 {
		fmt.Fprintln(out, "\nit has no policies")
		return nil
	}
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "POLICY\tDOMAIN\tKEY\tLIMIT\tALGORITHM\tAMOUNT\tPER\tMODE")
	for i := range set.Policies {
		printPolicy(table, &set.Policies[i])
	}
	return table.Flush()
}

func printPolicy(table io.Writer, p *policy.Policy) {
	key := strings.Join(p.Key, ",")
	if p.Global {
		key = "(global)"
	}
	for _, l := range p.Limits {
		per := policy.FormatDuration(l.Window)
		if l.Algorithm == limit.TokenBucket {
			per = fmt.Sprintf("refill %d per %s", l.Refill, per)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", printable(p.Namespace+"/"+p.Name), printable(p.Domain), printable(key),
			printable(l.Name), l.Algorithm, l.Amount, per, p.Mode)
	}
}
