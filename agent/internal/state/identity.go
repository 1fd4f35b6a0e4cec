package state

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/beckon-fleet/beckon/api/seal"
)

// Identity is one generation of who the node is: key and certificate in one
// file, so that they cannot come apart.
type Identity struct {
	NodeID              string   `json:"node_id"`
	Name                string   `json:"name"`
	Server              string   `json:"server"` // https://host:port
	Key                 string   `json:"key"`    // PEM, PKCS #8, Ed25519
	Certificate         string   `json:"certificate"`
	CAs                 []string `json:"cas"`
	SigningCertificates []string `json:"signing_certificates"`
	Generation          int64    `json:"generation"` // of trust
	Tier                *int     `json:"tier,omitempty"`

	leaf *x509.Certificate
	pair tls.Certificate
}

// check proves that the parts belong together.
func (id *Identity) check() (err error) {
	if id.NodeID == "" || id.Server == "" || len(id.CAs) == 0 {
		return errors.New("it lacks the node, the server or the CA")
	}
	if id.pair, err = tls.X509KeyPair([]byte(id.Certificate), []byte(id.Key)); err != nil {
		return fmt.Errorf("key and certificate: %w", err)
	}
	if id.leaf, err = seal.ParseCertificate(id.Certificate); err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	if id.leaf.Subject.CommonName != id.NodeID {
		return fmt.Errorf("the certificate is of %s, not of %s", id.leaf.Subject.CommonName, id.NodeID)
	}
	ca, err := seal.ParseCertificate(id.CAs[0])
	if err != nil {
		return fmt.Errorf("CA: %w", err)
	}
	if err := id.leaf.CheckSignatureFrom(ca); err != nil {
		return fmt.Errorf("the certificate is not of the pinned CA: %w", err)
	}
	return nil
}

// WithCertificate is id with another key and its certificate; it is refused
// unless the certificate is for that key and this node, from the pinned CA.
func (id *Identity) WithCertificate(key Key, certificate string) (*Identity, error) {
	next := *id
	next.Key, next.Certificate = key.PEM, certificate
	if err := next.check(); err != nil {
		return nil, fmt.Errorf("the certificate was refused: %w", err)
	}
	return &next, nil
}

// TLS is the pair for the handshake.
func (id *Identity) TLS() tls.Certificate { return id.pair }

// Pin is the fingerprint of the CA.
func (id *Identity) Pin() (seal.Pin, error) {
	ca, err := seal.ParseCertificate(id.CAs[0])
	if err != nil {
		return "", fmt.Errorf("CA: %w", err)
	}
	return seal.PinOf(ca), nil
}

// SigningKeys are the keys whose envelopes the node obeys.
func (id *Identity) SigningKeys() (seal.Keys, error) {
	roots := x509.NewCertPool()
	for _, text := range id.CAs {
		ca, err := seal.ParseCertificate(text)
		if err != nil {
			return nil, fmt.Errorf("CA: %w", err)
		}
		roots.AddCert(ca)
	}
	return seal.SigningKeys(id.SigningCertificates, roots)
}

// ValidUntil is the end of the certificate.
func (id *Identity) ValidUntil() time.Time { return id.leaf.NotAfter }

// RenewAt is half of the certificate's life after its issue, give or take a
// tenth of that half, so that a fleet that joined together does not renew
// together. It is the same each time it is asked.
func (id *Identity) RenewAt(backdate time.Duration) time.Time {
	issued := id.leaf.NotBefore.Add(backdate)
	life := id.leaf.NotAfter.Sub(issued)
	spread := sha256.Sum256(id.leaf.Raw)
	part := float64(spread[0])/255*0.1 - 0.05
	return issued.Add(time.Duration((0.5 + part) * float64(life)))
}

// Key is an identity key that was made here.
type Key struct {
	PEM     string `json:"key"`
	private ed25519.PrivateKey
}

// NewKey makes one.
func NewKey() (Key, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, fmt.Errorf("make key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return Key{}, fmt.Errorf("encode key: %w", err)
	}
	return Key{string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), private}, nil
}

// CSR asks for a certificate. It holds the public key and nothing else of use.
func (k Key) CSR() (string, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, k.private)
	if err != nil {
		return "", fmt.Errorf("make certificate request: %w", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), nil
}

func (k *Key) parse() error {
	block, _ := pem.Decode([]byte(k.PEM))
	if block == nil {
		return errors.New("the key is not PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return fmt.Errorf("parse key: %w", err)
	}
	private, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return errors.New("the key is not Ed25519")
	}
	k.private = private
	return nil
}

// joining is a join under way: its key, kept so that the repeat after a lost
// answer or a crash is recognised as the same join.
type joining struct {
	Key
	TokenSHA256 string `json:"token_sha256"`
}

// JoinKey returns the key for a join with the token: the one of an earlier try
// with the same token, else a new one, which is on disk before it is used.
func (f *Folder) JoinKey(token string) (Key, error) {
	sum := sha256.Sum256([]byte(token))
	hash := hex.EncodeToString(sum[:])
	var j joining
	err := f.load(joiningFile, &j)
	switch {
	case err == nil && j.TokenSHA256 == hash && j.parse() == nil:
		return j.Key, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		// A half-written key was never used with success, so nothing hangs on it.
		f.log.Warn("an unfinished join cannot be read and is begun anew", "err", err)
		if err := f.quarantine(joiningFile, err); err != nil {
			return Key{}, err
		}
	}
	key, err := NewKey()
	if err != nil {
		return Key{}, err
	}
	return key, f.write(joiningFile, joining{key, hash})
}

// Joined keeps a first identity, and drops what stood in its way.
func (f *Folder) Joined(id *Identity) error {
	if err := id.check(); err != nil {
		return fmt.Errorf("the identity was refused: %w", err)
	}
	if err := f.Keep(id); err != nil {
		return err
	}
	// In this order: while the mark stands the join must be repeatable.
	for _, name := range []string{revokedFile, joiningFile} {
		if err := os.Remove(f.Path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("clear %s: %w", name, err)
		}
	}
	return nil
}
