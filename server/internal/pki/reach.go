package pki

import (
	"crypto/x509"
	"os"
	"path/filepath"
)

// PublicKey is the SubjectPublicKeyInfo of a CSR's key. The error for a bad CSR
// is api.CSRInvalid.
func PublicKey(csrPEM string) ([]byte, error) {
	key, err := keyOf(csrPEM)
	if err != nil {
		return nil, err
	}
	return x509.MarshalPKIXPublicKey(key)
}

// Exists reports whether a server was ever started in dir.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, caFile))
	return err == nil
}

// Generation counts the changes of trust; it is the trust cursor.
func (a *Authority) Generation() int64 { return a.TrustDocument("").Generation }
