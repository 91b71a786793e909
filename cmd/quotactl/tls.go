package main

import (
	"crypto/tls"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/access"
)

// tlsFlags are those of every command that asks a node: who asks, and whom to believe.
type tlsFlags struct{ files access.Files }

func (f *tlsFlags) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.files.CA, "ca", "", "file of the CAs that sign the nodes' certificates")
	flags.StringVar(&f.files.Cert, "cert", "", "file of your certificate; without one only this machine is asked")
	flags.StringVar(&f.files.Key, "key", "", "file of its private key")
}

func (f *tlsFlags) given() bool { return f.files != (access.Files{}) }

func (f *tlsFlags) validate() error {
	if f.given() && (f.files.CA == "" || f.files.Cert == "" || f.files.Key == "") {
		return errors.New("--ca, --cert and --key go together: give all three, or none")
	}
	return nil
}

// config returns what to dial with, nil without certificates. The other end has to be what expect says.
func (f *tlsFlags) config(expect func(access.Identity) error) (*tls.Config, error) {
	if !f.given() {
		return nil, nil
	}
	keeper, err := access.Open(f.files, time.Now)
	if err != nil {
		return nil, err
	}
	return keeper.ClientTLS(expect), nil
}

// decides expects whoever may answer a check in the domain: a node, or a gateway that serves the domain.
func decides(domain string) func(access.Identity) error {
	return func(id access.Identity) error {
		if domain != "" && id.MayCheck(domain) {
			return nil
		}
		return access.IsPeer(id)
	}
}
