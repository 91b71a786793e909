package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// The shapes below are those of the file, for whoever asks what a node would run with.

type shownConfig struct {
	Name        string      `yaml:"name"`
	Zone        string      `yaml:"zone,omitempty"`
	DataDir     string      `yaml:"dataDir"`
	Partitions  int         `yaml:"partitions"`
	Replication int         `yaml:"replication"`
	Nodes       []shownNode `yaml:"nodes"`
	Listen      shownListen `yaml:"listen"`
	TLS         *shownTLS   `yaml:"tls,omitempty"`
	Memory      string      `yaml:"memory"`
	LogBytes    string      `yaml:"logBytes"`
	Election    string      `yaml:"election"`
	LogLevel    string      `yaml:"logLevel"`
}

type shownNode struct {
	Name  string `yaml:"name"`
	Links string `yaml:"links"`
	GRPC  string `yaml:"grpc"`
	Zone  string `yaml:"zone,omitempty"`
}

type shownListen struct {
	Links  string `yaml:"links"`
	GRPC   string `yaml:"grpc"`
	Health string `yaml:"health"`
}

type shownTLS struct {
	CA   string `yaml:"ca"`
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// show writes the configuration as a file that means the same.
func (c *runConfig) show(out io.Writer) error {
	v := shownConfig{
		Name: c.Name, Zone: c.Zone, DataDir: c.DataDir, Partitions: c.partitions(), Replication: c.Replication,
		Listen: shownListen(c.Listen),
		Memory: formatSize(c.Memory), LogBytes: formatSize(c.LogBytes), Election: formatElection(c.Election),
		LogLevel: strings.ToLower(c.LogLevel.String()),
	}
	for _, n := range c.Nodes {
		v.Nodes = append(v.Nodes, shownNode(n))
	}
	if c.TLS.CA != "" {
		v.TLS = &shownTLS{CA: c.TLS.CA, Cert: c.TLS.Cert, Key: c.TLS.Key}
	}
	var text bytes.Buffer
	e := yaml.NewEncoder(&text)
	e.SetIndent(2)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := out.Write(text.Bytes())
	return err
}

// formatElection is the duration as Go prints it, which the file's reader takes.
func formatElection(d time.Duration) string { return d.String() }

// The lines in docs/running.md between which the reference stands.
const (
	referenceBegin = "<!-- configuration -->"
	referenceEnd   = "<!-- /configuration -->"
)

// configReference is the table of all fields, in Markdown.
func configReference() string {
	var b strings.Builder
	b.WriteString("| field | type | default | flag | |\n|---|---|---|---|---|\n")
	for _, f := range configFields {
		fallback, flag := f.otherwise, ""
		switch {
		case f.required:
			fallback = "required"
		case f.fallback != "":
			fallback = "`" + f.fallback + "`"
		}
		if f.flag != "" {
			flag = "`--" + f.flag + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.path, f.kind, fallback, flag, f.doc)
	}
	return b.String()
}
