package pki_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
	"github.com/beckon-fleet/beckon/server/internal/pki"
)

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// request is a CSR that asks for all that a node must not get.
func request(t *testing.T, key crypto.Signer) string {
	t.Helper()
	if key == nil {
		key = newKey(t)
	}
	signer, err := asn1.Marshal([]asn1.ObjectIdentifier{seal.SignerUsage})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := asn1.Marshal(struct{ IsCA bool }{true})
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:        pkix.Name{CommonName: "node_2", Organization: []string{"admins"}},
		DNSNames:       []string{api.ServerName, "localhost"},
		IPAddresses:    []net.IP{net.IPv4(127, 0, 0, 1)},
		EmailAddresses: []string{"root@example.com"},
		ExtraExtensions: []pkix.Extension{
			{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Critical: true, Value: signer},
			{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: ca},
			{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Value: []byte{5, 0}},
		},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

func TestNodeCertificateTakesTheKeyAndNothingElse(t *testing.T) {
	a := open(t, t.TempDir())
	key := newKey(t)
	text, c, err := a.NodeCertificate("node_1", request(t, key))
	if err != nil {
		t.Fatal(err)
	}
	if parsed, err := seal.ParseCertificate(text); err != nil || !parsed.Equal(c) {
		t.Errorf("the text is another certificate: %v", err)
	}
	if !key.Public().(ed25519.PublicKey).Equal(c.PublicKey) || c.Subject.String() != "CN=node_1" {
		t.Errorf("the subject is %s", c.Subject)
	}
	if !c.NotBefore.Equal(start().Add(-api.Backdate)) || !c.NotAfter.Equal(start().Add(api.CertificateLife)) {
		t.Errorf("valid from %v to %v", c.NotBefore, c.NotAfter)
	}
	if !slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) || len(c.UnknownExtKeyUsage) > 0 ||
		c.KeyUsage != x509.KeyUsageDigitalSignature || c.IsCA {
		t.Errorf("usages %v %v %v, CA %v", c.ExtKeyUsage, c.UnknownExtKeyUsage, c.KeyUsage, c.IsCA)
	}
	var ids []string
	for _, extension := range c.Extensions {
		ids = append(ids, extension.Id.String())
	}
	slices.Sort(ids)
	// Basic constraints, key usage, authority's key, extended key usage.
	if got := strings.Join(ids, " "); got != "2.5.29.15 2.5.29.19 2.5.29.35 2.5.29.37" {
		t.Errorf("extensions %s", got)
	}
	serials := map[string]bool{}
	for range 50 {
		_, c, err := a.NodeCertificate("node_1", request(t, key))
		if err != nil || c.SerialNumber.Sign() <= 0 || c.SerialNumber.BitLen() > 127 {
			t.Fatalf("serial %v, %v", c.SerialNumber, err)
		}
		serials[c.SerialNumber.String()] = true
	}
	if len(serials) != 50 {
		t.Error("serial numbers repeat")
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	a := open(t, t.TempDir())
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecdsaKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := request(t, nil)
	block, _ := pem.Decode([]byte(good))
	forged := slices.Clone(block.Bytes)
	forged[len(forged)-1] ^= 1
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	for name, c := range map[string]struct{ csr, want string }{
		"empty":              {"", "one PEM certificate request"},
		"not PEM":            {"hello", "one PEM certificate request"},
		"a certificate":      {seal.EncodeCertificate(a.CA()), "one PEM certificate request"},
		"two":                {good + good, "one PEM certificate request"},
		"something behind":   {good + "x", "one PEM certificate request"},
		"half":               {encode("CERTIFICATE REQUEST", block.Bytes[:len(block.Bytes)/2]), "cannot be read"},
		"RSA":                {request(t, rsaKey), "its key is RSA, and must be Ed25519"},
		"ECDSA":              {request(t, ecdsaKey), "its key is ECDSA, and must be Ed25519"},
		"not by its own key": {encode("CERTIFICATE REQUEST", forged), "not by its own key"},
	} {
		text, certificate, err := a.NodeCertificate("node_1", c.csr)
		if !errors.Is(err, api.CSRInvalid) || !strings.Contains(err.Error(), c.want) || text != "" || certificate != nil {
			t.Errorf("%s: want %q, got %v", name, c.want, err)
		}
	}
}

// Each certificate is good for one thing, whoever shows it.
func TestCertificatesDoNotPassForOthers(t *testing.T) {
	a := open(t, t.TempDir())
	_, node, err := a.NodeCertificate("node_1", request(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	signing, err := seal.ParseCertificate(a.TrustDocument("").SigningCertificates[0])
	if err != nil {
		t.Fatal(err)
	}
	critical := func(e pkix.Extension) bool { return e.Id.String() == "2.5.29.37" && e.Critical }
	if !slices.ContainsFunc(signing.Extensions, critical) || !signing.NotAfter.Equal(a.CA().NotAfter) {
		t.Error("the signer's usage is not critical, or it does not live as long as the CA")
	}
	for name, c := range map[string]struct {
		certificate *x509.Certificate
		usage       x509.ExtKeyUsage
		good        bool
	}{
		"node as client":   {node, x509.ExtKeyUsageClientAuth, true},
		"node as server":   {node, x509.ExtKeyUsageServerAuth, false},
		"server as server": {serving(t, a).Leaf, x509.ExtKeyUsageServerAuth, true},
		"server as client": {serving(t, a).Leaf, x509.ExtKeyUsageClientAuth, false},
		"signer as client": {signing, x509.ExtKeyUsageClientAuth, false},
		"signer as server": {signing, x509.ExtKeyUsageServerAuth, false},
	} {
		pool := x509.NewCertPool()
		pool.AddCert(a.CA())
		_, err := c.certificate.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: start(), KeyUsages: []x509.ExtKeyUsage{c.usage}})
		if (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// trusted signs a document as s and opens it with a's pin.
func trusted(t *testing.T, a *pki.Authority, s seal.Signer, doc api.TrustDocument) (seal.Trusted, error) {
	t.Helper()
	data, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := seal.OpenTrust(s.Sign(seal.TagTrust, "", 1, data), "", a.Pin())
	return got, err
}

func TestTrustComesFromThePinAlone(t *testing.T) {
	dir := t.TempDir()
	a, evil := open(t, dir), open(t, t.TempDir())
	doc := a.TrustDocument("nonce-1")
	if doc.Generation != 1 || doc.Nonce != "nonce-1" || !doc.ServerTime.Equal(start()) {
		t.Errorf("the document says %+v", doc)
	}
	got, err := trusted(t, a, a.Signer(), doc)
	if err != nil || len(got.CAs) != 1 || !got.CAs[0].Equal(a.CA()) || len(got.Keys) != 1 || got.Keys[a.Signer().ID] == nil {
		t.Fatalf("%+v, %v", got, err)
	}

	both := doc
	both.CAs = append([]string{evil.TrustDocument("").CAs[0]}, doc.CAs...)
	if got, err := trusted(t, a, a.Signer(), both); err != nil || len(got.CAs) != 1 || !got.CAs[0].Equal(a.CA()) {
		t.Errorf("a second CA in the list was taken: %+v, %v", got, err)
	}

	key := newKey(t)
	nodeText, _, err := a.NodeCertificate("node_1", request(t, key))
	if err != nil {
		t.Fatal(err)
	}
	node := seal.Signer{ID: seal.KeyID(key.Public().(ed25519.PublicKey)), Private: key}
	serverText := seal.EncodeCertificate(serving(t, a).Leaf)
	for name, c := range map[string]struct {
		signer       seal.Signer
		cas, signing []string
	}{
		"a node's key and certificate":     {node, doc.CAs, []string{nodeText}},
		"a node's beside the signer's":     {node, doc.CAs, []string{doc.SigningCertificates[0], nodeText}},
		"a node's key without certificate": {node, doc.CAs, doc.SigningCertificates},
		"the server's certificate":         {node, doc.CAs, []string{serverText}},
		"the CA's certificate":             {node, doc.CAs, doc.CAs},
		"another cluster":                  {evil.Signer(), evil.TrustDocument("").CAs, evil.TrustDocument("").SigningCertificates},
		"another cluster with our CA":      {evil.Signer(), both.CAs, evil.TrustDocument("").SigningCertificates},
		"no signing certificate":           {a.Signer(), doc.CAs, nil},
		"no CA":                            {a.Signer(), nil, doc.SigningCertificates},
		"the server's as CA":               {a.Signer(), []string{serverText}, doc.SigningCertificates},
	} {
		forged := doc
		forged.CAs, forged.SigningCertificates = c.cas, c.signing
		if _, err := trusted(t, a, c.signer, forged); !errors.Is(err, api.SignatureBad) {
			t.Errorf("%s: want signature_bad, got %v", name, err)
		}
	}
}
