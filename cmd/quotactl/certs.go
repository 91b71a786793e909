package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/access/authority"
)

func newCertsCommand() *cobra.Command {
	certs := &cobra.Command{
		Use:   "certs",
		Short: "Make certificates to try a cluster with",
		Args:  cobra.NoArgs,
		// Without it cobra takes a misspelt subcommand for a question for help: status 0.
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	certs.AddCommand(newCertsDevCommand())
	return certs
}

func newCertsDevCommand() *cobra.Command {
	var w wantedCerts
	c := &cobra.Command{
		Use:   "dev",
		Short: "Make a CA and a certificate for each role, for trying out only",
		Long: `Make a CA and, signed by it, a certificate for each node and for a gateway, a policy
writer and a reader. Those of the nodes and of the gateway, which callers over gRPC are
shown, also hold for localhost, 127.0.0.1 and ::1. What is there already stays; only
what is missing is made, with the same CA.

They are for trying out only: the CA's key lies beside them, and nobody renews them.

Exit status: 0 all are there, 1 it didn't work, 2 wrong usage.`,
		Example: "  quotactl certs dev --dir ./quorate-certs --nodes n1,n2,n3",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := w.list()
			if err != nil {
				return err
			}
			f := &certFolder{dir: w.dir, out: cmd.OutOrStdout(), now: time.Now(), days: w.days}
			if err := f.complete(list); err != nil {
				return command.Failed(err)
			}
			return nil
		},
	}
	c.Flags().StringVar(&w.dir, "dir", "./quorate-certs", "folder to write to; made if missing")
	c.Flags().StringSliceVar(&w.nodes, "nodes", []string{"n1", "n2", "n3"}, "names of the nodes")
	c.Flags().StringSliceVar(&w.domains, "domains", []string{allDomains}, "domains of the gateway; *: all")
	c.Flags().IntVar(&w.days, "days", 365, "days that they are valid for")
	return c
}

const (
	allDomains  = "*"
	longestDays = 3650
	caName      = "ca"  // ca.crt and ca.key
	devName     = "dev" // of whoever isn't a node
	day         = 24 * time.Hour
)

// wantedCerts is what the flags ask for.
type wantedCerts struct {
	dir            string
	nodes, domains []string
	days           int
}

// wantedCert is one of them: NAME.crt and NAME.key.
type wantedCert struct {
	name string
	role access.Role
}

// list checks the flags and returns the certificates that they mean, without the CA's.
func (w *wantedCerts) list() ([]wantedCert, error) {
	switch {
	case w.dir == "":
		return nil, errors.New("--dir: is empty")
	case w.days < 1 || w.days > longestDays:
		return nil, fmt.Errorf("--days %d: not from 1 to %d", w.days, longestDays)
	case len(w.nodes) == 0:
		return nil, errors.New("--nodes: names none")
	}
	gateway := access.Role{Kind: access.Gateway, Name: devName}
	for _, d := range w.domains {
		if d == allDomains {
			gateway.AllDomains = true
		} else {
			gateway.Domains = append(gateway.Domains, d)
		}
	}
	gateway, err := access.ParseRole(gateway.URL())
	if err != nil {
		return nil, fmt.Errorf("--domains %q: %w", w.domains, err)
	}
	list := []wantedCert{
		{"gateway", gateway},
		{"policy-writer", access.Role{Kind: access.PolicyWriter, Name: devName}},
		{"reader", access.Role{Kind: access.Reader, Name: devName}},
	}
	return w.addNodes(list)
}

func (w *wantedCerts) addNodes(list []wantedCert) ([]wantedCert, error) {
	for i, node := range w.nodes {
		role := access.Role{Kind: access.Peer, Name: node}
		if _, err := access.ParseRole(role.URL()); err != nil {
			return nil, fmt.Errorf("--nodes %q: %w", node, err)
		}
		if node == caName || slices.ContainsFunc(list, func(c wantedCert) bool { return c.name == node }) {
			return nil, fmt.Errorf("--nodes %q: there is another %s.crt", node, node)
		}
		list = slices.Insert(list, i, wantedCert{node, role})
	}
	return list, nil
}

// certFolder is the folder that the certificates are in.
type certFolder struct {
	dir  string
	out  io.Writer // hears of each file
	now  time.Time
	days int

	ca *authority.CA
}

func (f *certFolder) lifetime() time.Duration { return time.Duration(f.days) * day }

// complete makes what is missing.
func (f *certFolder) complete(list []wantedCert) error {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return err
	}
	if err := f.completeCA(); err != nil {
		return err
	}
	for _, c := range list {
		there, err := f.has(c.name)
		if err == nil && there {
			err = f.keep(c.name)
		} else if err == nil {
			err = f.issue(c)
		}
		if err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(f.out, "They are for trying out only: the CA's key lies beside them, and nobody renews them.")
	return err
}

func (f *certFolder) path(name string) string { return filepath.Join(f.dir, name) }

// has says whether a certificate and its key are there. One without the other is an error: nothing that is
// there is written over.
func (f *certFolder) has(name string) (bool, error) {
	var there []string
	for _, file := range []string{f.path(name + ".crt"), f.path(name + ".key")} {
		switch _, err := os.Lstat(file); {
		case err == nil:
			there = append(there, file)
		case !errors.Is(err, fs.ErrNotExist):
			return false, err
		}
	}
	if len(there) == 1 {
		return false, fmt.Errorf("%s is there without its other half: bring that back, or remove it to have both made anew", there[0])
	}
	return len(there) == 2, nil
}

// keep leaves a certificate as it is, if it can be used.
func (f *certFolder) keep(name string) error {
	files := access.Files{CA: f.path(caName + ".crt"), Cert: f.path(name + ".crt"), Key: f.path(name + ".key")}
	k, err := access.Open(files, func() time.Time { return f.now })
	if err != nil {
		return fmt.Errorf("%s and %s are there but of no use: remove them to have them made anew: %w", files.Cert, files.Key, err)
	}
	return f.tell("kept", name, k.Identity().String(), k.NotAfter())
}

func (f *certFolder) tell(what, name, whose string, end time.Time) error {
	_, err := fmt.Fprintf(f.out, "%s %s: %s, until %s\n%s %s\n", what, f.path(name+".crt"), whose, end.UTC().Format(time.DateOnly), what, f.path(name+".key"))
	return err
}

func (f *certFolder) completeCA() error {
	there, err := f.has(caName)
	switch {
	case err != nil:
		return err
	case there:
		return f.openCA()
	}
	ca, pair, err := authority.Create("Quorate CA for trying out", f.now, f.lifetime())
	if err != nil {
		return err
	}
	f.ca = ca
	return f.write(caName, "the CA of the others", pair, ca.Cert().NotAfter)
}

func (f *certFolder) openCA() error {
	certFile, keyFile := f.path(caName+".crt"), f.path(caName+".key")
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return err
	}
	f.ca, err = authority.Open(authority.Pair{Cert: cert, Key: key})
	switch {
	case errors.Is(err, authority.ErrNotCA), err == nil && !f.now.Before(f.ca.Cert().NotAfter):
		return fmt.Errorf("%s is not a CA's, or has expired: use another --dir", certFile)
	case err != nil:
		return fmt.Errorf("open the CA in %s and %s: %w", certFile, keyFile, err)
	}
	return f.tell("kept", caName, "the CA of the others", f.ca.Cert().NotAfter)
}

func (f *certFolder) issue(c wantedCert) error {
	pair, err := f.ca.Issue(c.role, f.now, f.lifetime())
	if err != nil {
		return err
	}
	return f.write(c.name, c.role.String(), pair, f.ca.End(f.now, f.lifetime()))
}

// write writes a certificate and its key, or neither, and tells of it.
func (f *certFolder) write(name, whose string, pair authority.Pair, end time.Time) error {
	if err := create(f.path(name+".key"), 0o600, pair.Key); err != nil {
		return err
	}
	if err := create(f.path(name+".crt"), 0o644, pair.Cert); err != nil {
		return errors.Join(err, os.Remove(f.path(name+".key")))
	}
	return f.tell("made", name, whose, end)
}

// create writes a new file, and never to one that is there.
func create(path string, mode os.FileMode, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
