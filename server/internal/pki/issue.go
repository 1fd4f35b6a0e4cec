package pki

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/beckon-fleet/beckon/api/seal"
)

const (
	caYears    = 20
	serverLife = 365 * 24 * time.Hour
	// backdate is generous: a machine whose clock is slow, or not yet set
	// after its start, must be able to take the server for valid.
	backdate = 24 * time.Hour
)

func newCA(now time.Time) (b bundle, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return b, fmt.Errorf("make CA key: %w", err)
	}
	var name [4]byte // tells the CAs of two clusters apart in a list
	rand.Read(name[:])
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "Beckon CA " + hex.EncodeToString(name[:])},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.AddDate(caYears, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
	}
	cert, err := create(template, template, key.Public(), key)
	return bundle{key, cert}, err
}

// checkCA holds a CA to what newCA makes.
func checkCA(b bundle) error {
	key, ok := b.key.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return errors.New("its key is not ECDSA P-256")
	}
	if !b.cert.IsCA {
		return errors.New("its certificate is not a CA's")
	}
	if err := b.cert.CheckSignatureFrom(b.cert); err != nil {
		return fmt.Errorf("its certificate is not signed by itself: %w", err)
	}
	return nil
}

// newSigning makes the signing key and a certificate for it that passes for
// nothing else: its one usage is critical, and nothing else has it.
func (a *Authority) newSigning(now time.Time) (b bundle, err error) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return b, fmt.Errorf("make signing key: %w", err)
	}
	usage, err := asn1.Marshal([]asn1.ObjectIdentifier{seal.SignerUsage})
	if err != nil {
		return b, fmt.Errorf("encode usage: %w", err)
	}
	cert, err := a.issue(&x509.Certificate{
		Subject:         pkix.Name{CommonName: "Beckon signing"},
		NotBefore:       now.Add(-backdate),
		NotAfter:        a.ca.cert.NotAfter,
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Critical: true, Value: usage}},
	}, now, key.Public())
	return bundle{key, cert}, err
}

// issue signs a certificate that does not outlive the CA.
func (a *Authority) issue(template *x509.Certificate, now time.Time, key any) (*x509.Certificate, error) {
	ca := a.ca.cert
	if !now.Before(ca.NotAfter) {
		return nil, fmt.Errorf("issue certificate: the CA expired at %s: check this machine's clock", ca.NotAfter.Format(time.RFC3339))
	}
	if template.NotAfter.After(ca.NotAfter) {
		template.NotAfter = ca.NotAfter
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	return create(template, ca, key, a.ca.key)
}

func create(template, parent *x509.Certificate, key, signer any) (cert *x509.Certificate, err error) {
	if template.SerialNumber, err = newSerial(); err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, signer)
	if err != nil {
		return nil, fmt.Errorf("issue certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}

// newSerial is 127 random bits, and above 0.
func newSerial() (*big.Int, error) {
	one := big.NewInt(1)
	most := new(big.Int).Sub(new(big.Int).Lsh(one, 127), one)
	n, err := rand.Int(rand.Reader, most)
	if err != nil {
		return nil, err
	}
	return n.Add(n, one), nil
}
