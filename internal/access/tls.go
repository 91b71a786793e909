package access

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
)

// ServerTLS returns a configuration for whoever listens. A caller gets in with a certificate that the CAs in
// force have signed and that [FromCertificate] accepts; what it may do then is asked of its [Identity]. The
// configuration is good for ever: each connection takes what is in force when it begins, in a configuration of
// its own. So what a caller adds to this one, as protocols of the application layer (ALPN), doesn't count;
// gRPC adds its own to both.
func (k *Keeper) ServerTLS() *tls.Config {
	c := k.base()
	c.ClientAuth = tls.RequireAndVerifyClientCert
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return k.state.Load().server, nil }
	return c
}

// serverConfig is what one connection is served with. Material never changes, so neither does it.
func (k *Keeper) serverConfig(m *material) *tls.Config {
	c := k.base()
	c.ClientAuth = tls.RequireAndVerifyClientCert
	c.ClientCAs = m.roots
	c.Certificates = []tls.Certificate{m.pair}
	c.VerifyConnection = func(s tls.ConnectionState) error { // after the chain was verified
		_, err := FromCertificate(s.PeerCertificates[0])
		return err
	}
	return c
}

// ClientTLS returns a configuration for whoever dials. It verifies the server's chain, and that expect
// accepts its identity, in place of a host name: [IsNode] for a link to one node, [IsPeer], which nil
// stands for, for a question that any node may answer. It is good for ever, as that of [Keeper.ServerTLS].
func (k *Keeper) ClientTLS(expect func(Identity) error) *tls.Config {
	if expect == nil {
		expect = IsPeer
	}
	c := k.base()
	// This turns off the library's own verification, which insists on a host name. What it does otherwise,
	// VerifyConnection does; it runs in every handshake, and its error ends it.
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(s tls.ConnectionState) error {
		id, err := k.identify(s, x509.ExtKeyUsageServerAuth)
		if err != nil {
			return err
		}
		return expect(id)
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &k.state.Load().pair, nil
	}
	return c
}

func (k *Keeper) base() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		Time:       k.now,
		// A session that is resumed shows no certificate again. With a ticket whoever has once been let in
		// would stay in, after its CA was dropped as well. Clients have no cache of sessions either.
		SessionTicketsDisabled: true,
	}
}

// Identify returns whom a connection is with, verified against what is in force now. Handshakes have verified
// it by what was in force then; whoever holds connections for long can ask again, and close those whose
// certificate has expired or whose CA was dropped since. It costs a signature's verification for each
// certificate of the chain: it is for a connection, not for a check.
func (k *Keeper) Identify(s tls.ConnectionState) (Identity, error) {
	return k.identify(s, x509.ExtKeyUsageAny) // which side we are on, and so its usage, only the handshake knew
}

func (k *Keeper) identify(s tls.ConnectionState, usage x509.ExtKeyUsage) (Identity, error) {
	if len(s.PeerCertificates) == 0 {
		return Identity{}, fmt.Errorf("%w: there is none", ErrRefused)
	}
	if _, err := k.state.Load().verify(s.PeerCertificates, k.now(), usage); err != nil {
		return Identity{}, fmt.Errorf("verify the other side's certificate: %w", err)
	}
	return FromCertificate(s.PeerCertificates[0])
}
