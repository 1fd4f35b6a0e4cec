// Package auth says who is calling: a node by its certificate, an operator by
// a token.
package auth

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

// Verifier judges client certificates. TLS only asks for them: a handshake
// that fails cannot say why, and a live connection outlives its certificate.
type Verifier struct {
	CA    *x509.Certificate
	Clock func() time.Time
}

// Caller is the agent that calls.
type Caller struct {
	Node     string
	Until    time.Time // the end of the certificate, which a stream must not outlive
	Protocol int
	Version  string
	Instance api.Instance // the zero one when none was stated
}

// Identify judges the certificate that the connection has shown. grace is how
// long after its end it is still taken, which only renew allows. Time comes
// last, so that an expired certificate is told from one of another cluster.
func (v *Verifier) Identify(state *tls.ConnectionState, grace time.Duration) (c Caller, err error) {
	if state == nil || len(state.PeerCertificates) == 0 {
		return c, api.Errorf(api.CertificateMissing, "this call needs the node's client certificate")
	}
	leaf, roots := state.PeerCertificates[0], x509.NewCertPool()
	roots.AddCert(v.CA)
	_, err = leaf.Verify(x509.VerifyOptions{
		Roots:       roots,
		CurrentTime: leaf.NotBefore,
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	now := v.Clock()
	end := leaf.NotAfter.Add(grace)
	switch {
	case err != nil:
		return c, api.Errorf(api.CertificateInvalid, "the client certificate is not one of this cluster's nodes").Because(err)
	case now.Before(leaf.NotBefore):
		return c, api.Errorf(api.ClockSkew, "the certificate is valid from %s; here it is %s", leaf.NotBefore, now.UTC())
	case !now.Before(end) && grace > 0:
		return c, api.Errorf(api.CertificateExpired, "the certificate expired at %s, too long ago to renew it; join again with a new token", leaf.NotAfter)
	case !now.Before(end):
		return c, api.Errorf(api.CertificateExpired, "the certificate expired at %s; renew it", leaf.NotAfter)
	}
	return Caller{Node: leaf.Subject.CommonName, Until: leaf.NotAfter}, nil
}

// KeyHash names a public key: the SHA-256 of its SubjectPublicKeyInfo.
func KeyHash(spki []byte) string {
	sum := sha256.Sum256(spki)
	return hex.EncodeToString(sum[:])
}

type key struct{}

// With returns the context of a call by c.
func With(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, key{}, c)
}

// From returns who is calling; the zero Caller where nobody was identified.
func From(ctx context.Context) Caller {
	c, _ := ctx.Value(key{}).(Caller)
	return c
}
