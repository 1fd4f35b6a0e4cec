package seal

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/beckon-fleet/beckon/api"
)

// SignerUsage is the extended key usage of signing certificates, critical and
// the only one they have, so that no node's or server's certificate passes for
// the signer. The arc is the one that RFC 5612 keeps free: it means something
// under a cluster's own CA only, and has no part above 2^31, which Go and
// others do not read.
var SignerUsage = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 32473, 2451, 1}

// Trusted is what a node holds against all that claims to come from its
// control plane.
type Trusted struct {
	Generation int64
	CAs        []*x509.Certificate // the one in use first
	Keys       Keys
}

// Pool holds the CAs, the only roots of each verification.
func (t Trusted) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, ca := range t.CAs {
		pool.AddCert(ca)
	}
	return pool
}

// KeyID names a signing key: the first 16 hex digits of the SHA-256 of its
// SubjectPublicKeyInfo.
func KeyID(key ed25519.PublicKey) string {
	spki, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(spki)
	return hex.EncodeToString(sum[:8])
}

// OpenTrust verifies a trust envelope with the pin alone and reads it. The
// pinned CA must be among its CAs, and the key that signed it certified by that
// CA. Only the pinned CA is taken: a second one in the list proves nothing.
func OpenTrust(e api.Envelope, node string, pin Pin) (t Trusted, doc api.TrustDocument, err error) {
	// The document names the key that signed it, so it is read before it is
	// verified; nothing of it is kept until it is.
	if err := json.Unmarshal([]byte(e.Data), &doc); err != nil {
		return t, doc, api.Errorf(api.SignatureBad, "the trust document cannot be read").Because(err)
	}
	ca, err := pinned(doc.CAs, pin)
	if err != nil {
		return t, doc, err
	}
	t = Trusted{Generation: doc.Generation, CAs: []*x509.Certificate{ca}}
	if t.Keys, err = SigningKeys(doc.SigningCertificates, t.Pool()); err != nil {
		return t, doc, err
	}
	return t, doc, Verify(e, TagTrust, node, t.Keys)
}

// SigningKeys reads PEM certificates of signing keys. One that roots did not
// certify for signing is api.SignatureBad.
func SigningKeys(certificates []string, roots *x509.CertPool) (Keys, error) {
	keys := Keys{}
	for _, text := range certificates {
		key, err := signingKey(text, roots)
		if err != nil {
			return nil, api.Errorf(api.SignatureBad, "a signing certificate is not one of this cluster's: %v", err)
		}
		keys[KeyID(key)] = key
	}
	return keys, nil
}

func pinned(cas []string, pin Pin) (*x509.Certificate, error) {
	for _, text := range cas {
		ca, err := ParseCertificate(text)
		if err == nil && ca.IsCA && PinOf(ca) == pin {
			return ca, nil
		}
	}
	return nil, api.Errorf(api.SignatureBad, "none of the trust document's CAs has the pinned fingerprint %s", pin)
}

// signingKey takes a certificate for a signer's only when the signer's usage
// is all that it has.
func signingKey(text string, roots *x509.CertPool) (ed25519.PublicKey, error) {
	c, err := ParseCertificate(text)
	if err != nil {
		return nil, err
	}
	if len(c.ExtKeyUsage) != 0 || len(c.UnknownExtKeyUsage) != 1 || !c.UnknownExtKeyUsage[0].Equal(SignerUsage) {
		return nil, errors.New("it lacks the signer's key usage, or has others")
	}
	// Time is left out: a signer outlives no CA, and is withdrawn by the trust
	// document, not by a clock that may be wrong.
	options := x509.VerifyOptions{Roots: roots, CurrentTime: c.NotBefore, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	if _, err := c.Verify(options); err != nil {
		return nil, err
	}
	key, ok := c.PublicKey.(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("its key is not Ed25519")
	}
	return key, nil
}

// ParseCertificate reads one PEM certificate.
func ParseCertificate(text string) (*x509.Certificate, error) {
	block, rest := pem.Decode([]byte(text))
	if block == nil || block.Type != "CERTIFICATE" || len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("not one PEM certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

// EncodeCertificate writes one PEM certificate.
func EncodeCertificate(c *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}
