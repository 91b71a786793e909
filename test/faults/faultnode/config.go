package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/quorate/quorate/internal/access"
)

// config is what a test writes of the configuration of `quotanode run`, and what only this program has.
type config struct {
	Name       string        `yaml:"name"`
	DataDir    string        `yaml:"dataDir"`
	Partitions int           `yaml:"partitions"`
	Election   time.Duration `yaml:"election"`
	Nodes      []address     `yaml:"nodes"`
	Listen     struct {
		Health string `yaml:"health"`
	} `yaml:"listen"`
	TLS  certificates `yaml:"tls"`
	Test struct {
		LogBytes uint64        `yaml:"logBytes"` // as little as a test wants
		Balance  time.Duration `yaml:"balance"`  // how long a replica has to be fit before it leads again
		Compare  time.Duration `yaml:"compare"`  // the least time over which clocks are compared
		Wall     time.Duration `yaml:"wall"`     // what the wall clock is off by, from the start
	} `yaml:"test"`
}

type address struct {
	Name  string `yaml:"name"`
	Links string `yaml:"links"`
	GRPC  string `yaml:"grpc"`
}

type certificates struct {
	CA   string `yaml:"ca"`
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

func (c certificates) files() access.Files {
	return access.Files{CA: c.CA, Cert: c.Cert, Key: c.Key}
}

func readConfig(path string) (*config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c := &config{}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, file := range []*string{&c.TLS.CA, &c.TLS.Cert, &c.TLS.Key} {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(filepath.Dir(path), *file)
		}
	}
	if c.self() == nil {
		return nil, errors.New("it is none of the nodes")
	}
	return c, nil
}

// self is the entry of this node.
func (c *config) self() *address {
	for i := range c.Nodes {
		if c.Nodes[i].Name == c.Name {
			return &c.Nodes[i]
		}
	}
	return nil
}
