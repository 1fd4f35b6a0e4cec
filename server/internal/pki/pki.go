// Package pki holds what every node's trust rests on: the cluster's CA, the key
// that signs what changes a node, and the certificates of server and nodes
// (PROTOCOL.md section 2). Each key lies in one file with its certificate, so
// that the two cannot come apart.
package pki

import (
	"bytes"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
	"github.com/beckon-fleet/beckon/internal/durable"
)

// The files in the data folder.
const (
	caFile      = "ca.pem"
	signingFile = "signing.pem"
	serverFile  = "server.pem"
	publicFile  = "ca.crt"     // the CA certificate alone, for curl --cacert
	stagedFile  = "ca.pem.new" // the CA until the first start has both keys
)

// Authority issues the cluster's certificates. It is safe for concurrent use.
type Authority struct {
	dir   string
	clock func() time.Time
	ca    bundle
	names []string // that the server's certificate must hold, sorted

	signing     bundle
	signingText string // its certificate, PEM

	mu     sync.Mutex
	server bundle
}

// Open reads the keys in dir, or makes them at the first start. What a fleet
// trusts is never made anew: if a CA or signing key is damaged or missing, the
// error says which and what to do. A damaged server certificate is re-issued.
// names are what else the server is called by, host names or IP addresses.
func Open(dir string, clock func() time.Time, names []string) (*Authority, error) {
	wanted, err := serverNames(names)
	if err != nil {
		return nil, err
	}
	a := &Authority{dir: dir, clock: clock, names: wanted}
	if err := a.loadKeys(); err != nil {
		return nil, err
	}
	if err := a.publish(); err != nil {
		return nil, err
	}
	return a, a.loadServer()
}

func (a *Authority) path(file string) string { return filepath.Join(a.dir, file) }

// there reports whether anything has the name of file.
func (a *Authority) there(file string) bool {
	_, err := os.Lstat(a.path(file))
	return !errors.Is(err, fs.ErrNotExist)
}

func (a *Authority) loadKeys() error {
	if !a.there(caFile) && !a.there(signingFile) && !a.there(publicFile) && !a.there(serverFile) {
		if err := a.makeKeys(); err != nil {
			return fmt.Errorf("make keys: %w", err)
		}
	}
	if err := a.unstage(); err != nil {
		return fmt.Errorf("make keys: %w", err)
	}
	var err error
	if a.ca, err = readBundle(a.path(caFile)); err == nil {
		err = checkCA(a.ca)
	}
	if err != nil {
		return a.refuse(caFile, err)
	}
	if a.signing, err = readBundle(a.path(signingFile)); err == nil {
		a.signingText = seal.EncodeCertificate(a.signing.cert)
		err = a.checkSigning()
	}
	if err != nil {
		return a.refuse(signingFile, err)
	}
	return nil
}

// makeKeys is the first start. The CA gets its name only when the signing key
// is there too, so that a start that was cut off can be told from a file that
// was lost.
func (a *Authority) makeKeys() (err error) {
	now := a.clock()
	if a.ca, err = newCA(now); err != nil {
		return err
	}
	if err := a.ca.write(a.path(stagedFile)); err != nil {
		return err
	}
	signing, err := a.newSigning(now)
	if err != nil {
		return err
	}
	return signing.write(a.path(signingFile))
}

// unstage ends a first start, this one or one that was cut off.
func (a *Authority) unstage() error {
	text, err := os.ReadFile(a.path(stagedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !a.there(caFile) {
		if err := durable.Write(a.path(caFile), text, 0o600); err != nil {
			return err
		}
	}
	return os.Remove(a.path(stagedFile))
}

// refuse says what is wrong with a file that is never made anew.
func (a *Authority) refuse(file string, why error) error {
	if errors.Is(why, fs.ErrPermission) {
		return fmt.Errorf("%s cannot be used by user %d: %w: give it to the user that the server runs as", a.path(file), os.Geteuid(), why)
	}
	if errors.Is(why, fs.ErrNotExist) {
		why = errors.New("it is missing")
	}
	return fmt.Errorf("%s cannot be used: %w: restore it from a backup; a new one is never made in its place, because the nodes trust the old one", a.path(file), why)
}

// checkSigning does what each node will do: verify the trust document with the
// pin alone.
func (a *Authority) checkSigning() error {
	if _, ok := a.signing.key.(ed25519.PrivateKey); !ok {
		return errors.New("its key is not Ed25519")
	}
	data, err := json.Marshal(a.TrustDocument(""))
	if err != nil {
		return err
	}
	envelope := a.Signer().Sign(seal.TagTrust, "", 1, data)
	if _, _, err := seal.OpenTrust(envelope, "", a.Pin()); err != nil {
		return fmt.Errorf("no node would accept it with the CA in %s: %w", caFile, err)
	}
	return nil
}

// publish keeps the CA certificate where curl can be pointed at it.
func (a *Authority) publish() error {
	want := []byte(seal.EncodeCertificate(a.ca.cert))
	got, err := os.ReadFile(a.path(publicFile))
	if err == nil && bytes.Equal(got, want) {
		return nil
	}
	return durable.Write(a.path(publicFile), want, 0o644)
}

// CA is the cluster's CA certificate.
func (a *Authority) CA() *x509.Certificate { return a.ca.cert }

// Pin is what agents know the CA by.
func (a *Authority) Pin() seal.Pin { return seal.PinOf(a.ca.cert) }

// Signer signs what changes a node.
func (a *Authority) Signer() seal.Signer {
	key := a.signing.key.(ed25519.PrivateKey)
	return seal.Signer{ID: seal.KeyID(key.Public().(ed25519.PublicKey)), Private: key}
}

// TrustDocument says what a node holds against all that claims to come from
// this control plane.
func (a *Authority) TrustDocument(nonce string) api.TrustDocument {
	return api.TrustDocument{
		Generation:          1,
		CAs:                 []string{seal.EncodeCertificate(a.ca.cert)},
		SigningCertificates: []string{a.signingText},
		Nonce:               nonce,
		ServerTime:          a.clock().UTC(),
	}
}

// ServerCertificate is the certificate for the agents' listener, with its
// chain up to the CA, so that the pin is checked inside the handshake. It is
// re-issued when a third of its life is left or its names have changed; ask at
// each handshake.
func (a *Authority) ServerCertificate() (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.renewServer(); err != nil {
		return nil, err
	}
	return &tls.Certificate{
		Certificate: [][]byte{a.server.cert.Raw, a.ca.cert.Raw},
		PrivateKey:  a.server.key,
		Leaf:        a.server.cert,
	}, nil
}
