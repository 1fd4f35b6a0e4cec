package state_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/state"
	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func clock() time.Time { return noon }

// place is a state folder with all that is said about it.
type place struct {
	*state.Folder
	t   *testing.T
	dir string
	log *bytes.Buffer
}

func open(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, dir: filepath.Join(t.TempDir(), "state"), log: new(bytes.Buffer)}
	p.reopen()
	return p
}

// reopen is a restart of the agent.
func (p *place) reopen() {
	p.t.Helper()
	folder, err := state.Open(p.dir, clock, slog.New(slog.NewTextHandler(p.log, nil)))
	if err != nil {
		p.t.Fatal(err)
	}
	p.Folder = folder
}

// look is what a reader beside the agent has.
func (p *place) look() *state.Folder {
	return state.Look(p.dir, clock, slog.New(slog.NewTextHandler(p.log, nil)))
}

func (p *place) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// names are the files in the folder.
func (p *place) names() (names []string) {
	p.t.Helper()
	entries, err := os.ReadDir(p.dir)
	p.must(err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// holds wants exactly these files.
func (p *place) holds(want ...string) {
	p.t.Helper()
	slices.Sort(want)
	if got := p.names(); !slices.Equal(got, want) {
		p.t.Errorf("the folder holds %v, want %v", got, want)
	}
}

// is wants the identity to be good and to have this certificate.
func (p *place) is(want *state.Identity) {
	p.t.Helper()
	id, err := p.Identity()
	if err != nil || id == nil || id.Certificate != want.Certificate || id.Key != want.Key {
		p.t.Errorf("want the identity of %s, got %+v, %v", want.NodeID, id, err)
	}
}

// authority is a cluster's CA.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := authority{t: t, key: key}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Beckon CA"}, NotBefore: noon.AddDate(-1, 0, 0), NotAfter: noon.AddDate(20, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert = a.sign(template, template, key.Public())
	return a
}

func (a authority) sign(template, parent *x509.Certificate, public any) *x509.Certificate {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

// certificate is one for the key in a CSR, as the control plane issues it.
func (a authority) certificate(node, csr string) string {
	a.t.Helper()
	block, _ := pem.Decode([]byte(csr))
	if block == nil {
		a.t.Fatal("the CSR is no PEM")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		a.t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		a.t.Fatal(err)
	}
	return seal.EncodeCertificate(a.sign(&x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: node},
		NotBefore: noon.Add(-api.Backdate), NotAfter: noon.Add(api.CertificateLife),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.cert, request.PublicKey))
}

func (a authority) newKey() (key state.Key, csr string) {
	a.t.Helper()
	key, err := state.NewKey()
	if err == nil {
		csr, err = key.CSR()
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return key, csr
}

// identity is a good one, with a new key.
func (a authority) identity(node string) *state.Identity {
	a.t.Helper()
	key, csr := a.newKey()
	return &state.Identity{
		NodeID: node, Name: "web-1", Server: "https://control.example:8443", Key: key.PEM, Certificate: a.certificate(node, csr),
		CAs: []string{seal.EncodeCertificate(a.cert)}, Generation: 1,
	}
}
