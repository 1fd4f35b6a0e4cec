package pki

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
)

// NodeCertificate issues a node's certificate for the key in a CSR, PEM. From
// the CSR it takes the public key and nothing else: who the node is, the caller
// knows. The error for a bad CSR is api.CSRInvalid.
func (a *Authority) NodeCertificate(nodeID, csrPEM string) (text string, c *x509.Certificate, err error) {
	key, err := keyOf(csrPEM)
	if err != nil {
		return "", nil, err
	}
	now := a.clock()
	c, err = a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: nodeID},
		NotBefore:   now.Add(-api.Backdate),
		NotAfter:    now.Add(api.CertificateLife),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, now, key)
	if err != nil {
		return "", nil, err
	}
	return seal.EncodeCertificate(c), c, nil
}

// keyOf is the public key of a CSR whose sender holds the private one.
func keyOf(csrPEM string) (ed25519.PublicKey, error) {
	block, rest := pem.Decode([]byte(csrPEM))
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(bytes.TrimSpace(rest)) > 0 {
		return nil, api.Errorf(api.CSRInvalid, "csr: it must be one PEM certificate request")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, api.Errorf(api.CSRInvalid, "csr: the certificate request cannot be read").Because(err)
	}
	key, ok := csr.PublicKey.(ed25519.PublicKey)
	if !ok {
		return nil, api.Errorf(api.CSRInvalid, "csr: its key is %s, and must be Ed25519", csr.PublicKeyAlgorithm)
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, api.Errorf(api.CSRInvalid, "csr: its signature is not by its own key").Because(err)
	}
	return key, nil
}
