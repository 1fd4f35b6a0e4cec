package client

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
)

// PinnedTLS accepts a server whose chain holds a CA with one of the pins and
// whose certificate that CA made for the control plane, under the name
// api.ServerName instead of the dialled one. Neither the system's roots nor the
// dialled name widen or narrow that (PROTOCOL.md section 1).
func PinnedTLS(now func() time.Time, pins ...seal.Pin) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		Time:       now,
		// The name dialled goes out as SNI, so that what routes by it still
		// works; VerifyConnection does the whole verification, on resumed
		// connections too.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			return verifyServer(state.PeerCertificates, now(), pins)
		},
	}
}

// PinError says that the server shown is not of the pinned cluster.
type PinError struct {
	Shown  seal.Pin // of the last certificate of the chain shown
	Issuer string
	cause  error
}

// Error says who was there instead, and what that may mean.
func (e *PinError) Error() string {
	text := fmt.Sprintf("this is not the pinned control plane: its chain ends with %s, issued by %q", e.Shown, e.Issuer)
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text + "; either the pin is of another server, or a proxy opens TLS on the way (let it pass this address untouched)"
}

// Unwrap is what the verification said.
func (e *PinError) Unwrap() error { return e.cause }

func verifyServer(chain []*x509.Certificate, now time.Time, pins []seal.Pin) error {
	if len(chain) == 0 {
		return &PinError{cause: fmt.Errorf("it showed no certificate")}
	}
	last := chain[len(chain)-1]
	refused := &PinError{Shown: seal.PinOf(last), Issuer: last.Issuer.CommonName}
	roots := x509.NewCertPool()
	found := false
	for _, c := range chain {
		if c.IsCA && slices.Contains(pins, seal.PinOf(c)) {
			roots.AddCert(c)
			found = true
		}
	}
	if !found {
		return refused
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		DNSName:     api.ServerName,
		Roots:       roots,
		CurrentTime: now,
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		refused.cause = err
		return refused
	}
	return nil
}
