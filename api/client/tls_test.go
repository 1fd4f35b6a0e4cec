package client_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
	"github.com/beckon-fleet/beckon/api/seal"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// issuer is a CA, or whatever else signs certificates.
type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func (i issuer) pin() seal.Pin { return seal.PinOf(i.cert) }

func newCA(t *testing.T, name string) issuer {
	t.Helper()
	return issuer{}.issue(t, func(c *x509.Certificate) {
		*c = x509.Certificate{
			Subject: pkix.Name{CommonName: name}, NotBefore: noon.AddDate(-1, 0, 0), NotAfter: noon.AddDate(20, 0, 0),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}
	})
}

// issue makes a server's certificate as the control plane does, but for what
// change changes. No issuer signs itself.
func (i issuer) issue(t *testing.T, change func(*x509.Certificate)) issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "Beckon control plane"}, DNSNames: []string{api.ServerName}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: noon.Add(-time.Hour), NotAfter: noon.Add(24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	if change != nil {
		change(template)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	parent, signer := i.cert, i.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return issuer{cert, key}
}

// serve shows a chain to whoever dials.
func serve(t *testing.T, leaf issuer, chain ...issuer) (address string) {
	t.Helper()
	shown := tls.Certificate{PrivateKey: leaf.key, Certificate: [][]byte{leaf.cert.Raw}}
	for _, c := range chain {
		shown.Certificate = append(shown.Certificate, c.cert.Raw)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{shown}, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"state": "acked"}`)
		}),
		ErrorLog: log.New(io.Discard, "", 0), // refused handshakes
	}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return listener.Addr().String()
}

func TestPinnedTLS(t *testing.T) {
	ca, other := newCA(t, "Beckon CA 1"), newCA(t, "Beckon CA 2")
	intermediate := ca.issue(t, func(c *x509.Certificate) { c.IsCA, c.KeyUsage, c.ExtKeyUsage = true, x509.KeyUsageCertSign, nil })
	self := issuer{}.issue(t, nil)
	good := ca.issue(t, nil)
	as := func(change func(*x509.Certificate)) issuer { return ca.issue(t, change) }
	for name, c := range map[string]struct {
		leaf  issuer
		chain []issuer
		pins  []seal.Pin
		words string // of the refusal; "" for a good one
	}{
		"right":                      {good, []issuer{ca}, []seal.Pin{ca.pin()}, ""},
		"one of two pins":            {good, []issuer{ca}, []seal.Pin{other.pin(), ca.pin()}, ""},
		"another CA behind it":       {good, []issuer{ca, other}, []seal.Pin{ca.pin()}, ""},
		"another CA between":         {good, []issuer{other, ca}, []seal.Pin{ca.pin()}, ""},
		"wrong pin":                  {good, []issuer{ca}, []seal.Pin{other.pin()}, "its chain ends with " + string(ca.pin()) + `, issued by "Beckon CA 1"`},
		"no pin":                     {good, []issuer{ca}, nil, "not the pinned control plane"},
		"empty pin":                  {good, []issuer{ca}, []seal.Pin{""}, "not the pinned control plane"},
		"CA not shown":               {good, nil, []seal.Pin{ca.pin()}, `issued by "Beckon CA 1"`},
		"pin of the leaf":            {good, []issuer{ca}, []seal.Pin{good.pin()}, "not the pinned control plane"},
		"self-signed":                {self, nil, []seal.Pin{self.pin()}, "not the pinned control plane"},
		"the CA itself":              {ca, nil, []seal.Pin{ca.pin()}, "not valid for any names"},
		"of another cluster":         {other.issue(t, nil), []issuer{other}, []seal.Pin{ca.pin()}, "not the pinned control plane"},
		"other's, with our CA shown": {other.issue(t, nil), []issuer{other, ca}, []seal.Pin{ca.pin()}, "unknown authority"},
		"other's, our CA alone":      {other.issue(t, nil), []issuer{ca}, []seal.Pin{ca.pin()}, "unknown authority"},
		"self-signed, our CA shown":  {self, []issuer{ca}, []seal.Pin{ca.pin()}, "unknown authority"},
		"below an intermediate":      {intermediate.issue(t, nil), []issuer{intermediate, ca}, []seal.Pin{ca.pin()}, "unknown authority"},
		"a node's": {as(func(c *x509.Certificate) {
			c.Subject.CommonName, c.DNSNames, c.ExtKeyUsage = "node_1", nil, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}), []issuer{ca}, []seal.Pin{ca.pin()}, "not valid for any names"},
		"a node's with the name": {as(func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}), []issuer{ca}, []seal.Pin{ca.pin()}, "incompatible key usage"},
		"the signer's": {as(func(c *x509.Certificate) {
			c.ExtKeyUsage, c.UnknownExtKeyUsage = nil, append(c.UnknownExtKeyUsage, seal.SignerUsage)
		}), []issuer{ca}, []seal.Pin{ca.pin()}, "incompatible key usage"},
		"without the name": {as(func(c *x509.Certificate) { c.DNSNames = nil }), []issuer{ca}, []seal.Pin{ca.pin()}, "not valid for any names"},
		"of the dialled name": {as(func(c *x509.Certificate) {
			c.DNSNames = []string{"127.0.0.1", "control.example"}
		}), []issuer{ca}, []seal.Pin{ca.pin()}, "not " + api.ServerName},
		"a wildcard":    {as(func(c *x509.Certificate) { c.DNSNames = []string{"*.beckon.internal"} }), []issuer{ca}, []seal.Pin{ca.pin()}, ""},
		"expired":       {as(func(c *x509.Certificate) { c.NotAfter = noon.Add(-time.Second) }), []issuer{ca}, []seal.Pin{ca.pin()}, "expired"},
		"not valid yet": {as(func(c *x509.Certificate) { c.NotBefore = noon.Add(time.Second) }), []issuer{ca}, []seal.Pin{ca.pin()}, "not yet valid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := serve(t, c.leaf, c.chain...)
			transport := &http.Transport{TLSClientConfig: client.PinnedTLS(func() time.Time { return noon }, c.pins...), ForceAttemptHTTP2: true}
			defer transport.CloseIdleConnections()
			res, err := ask(t, client.New("https://"+address, transport, nil))
			if c.words == "" {
				if err != nil || res.State != api.Acked {
					t.Errorf("got %+v, %v", res, err)
				}
				return
			}
			refused, ok := errors.AsType[*client.PinError](err)
			if !ok || !strings.Contains(err.Error(), c.words) || !strings.Contains(err.Error(), "either the pin is of another server, or a proxy opens TLS") {
				t.Fatalf("want %q: %v", c.words, err)
			}
			last := append([]issuer{c.leaf}, c.chain...)[len(c.chain)]
			if refused.Shown != last.pin() || refused.Issuer != last.cert.Issuer.CommonName {
				t.Errorf("it says that %s, %q was shown", refused.Shown, refused.Issuer)
			}
		})
	}
}

// The dialled name goes out, so that what routes by it still works, and widens
// nothing.
func TestDialledNameIsSentAndNotVerified(t *testing.T) {
	ca := newCA(t, "Beckon CA 1")
	leaf := ca.issue(t, nil)
	asked := make(chan string, 1)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		asked <- hello.ServerName
		return &tls.Certificate{PrivateKey: leaf.key, Certificate: [][]byte{leaf.cert.Raw, ca.cert.Raw}}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go accept(listener)
	config := client.PinnedTLS(func() time.Time { return noon }, ca.pin())
	config.ServerName = "control.example"
	conn, err := tls.Dial("tcp", listener.Addr().String(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if name := <-asked; name != "control.example" || conn.ConnectionState().Version != tls.VersionTLS13 {
		t.Errorf("asked was for %q, in TLS %x", name, conn.ConnectionState().Version)
	}
}

// accept answers each connection with a byte, so that its session ticket is
// read too.
func accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			if _, err := conn.Write([]byte{1}); err == nil {
				conn.Read(make([]byte, 1))
			}
		}()
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	ca := newCA(t, "Beckon CA 1")
	leaf := ca.issue(t, nil)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{PrivateKey: leaf.key, Certificate: [][]byte{leaf.cert.Raw, ca.cert.Raw}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go accept(listener)
	conn, err := tls.Dial("tcp", listener.Addr().String(), client.PinnedTLS(func() time.Time { return noon }, ca.pin()))
	if err == nil {
		conn.Close()
		t.Error("TLS 1.2 was taken")
	}
}

// A resumed connection shows no certificate again, and is verified all the
// same: time goes on, and pins change.
func TestResumedConnectionIsVerified(t *testing.T) {
	ca, other := newCA(t, "Beckon CA 1"), newCA(t, "Beckon CA 2")
	leaf := ca.issue(t, nil)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{PrivateKey: leaf.key, Certificate: [][]byte{leaf.cert.Raw, ca.cert.Raw}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go accept(listener)
	now := noon
	cache := tls.NewLRUClientSessionCache(10)
	dial := func(pin seal.Pin) (resumed bool, err error) {
		config := client.PinnedTLS(func() time.Time { return now }, pin)
		config.ClientSessionCache = cache
		verify := config.VerifyConnection
		config.VerifyConnection = func(state tls.ConnectionState) error {
			resumed = state.DidResume
			return verify(state)
		}
		conn, err := tls.Dial("tcp", listener.Addr().String(), config)
		if err != nil {
			return resumed, err
		}
		defer conn.Close()
		_, err = io.ReadFull(conn, make([]byte, 1))
		return resumed, err
	}
	for i, want := range []bool{false, true, true} {
		if resumed, err := dial(ca.pin()); resumed != want || err != nil {
			t.Fatalf("connection %d, resumed %v: %v", i, resumed, err)
		}
	}
	resumed, err := dial(other.pin())
	if _, refused := errors.AsType[*client.PinError](err); !resumed || !refused {
		t.Errorf("with another pin, resumed %v: %v", resumed, err)
	}
	if _, err := dial(ca.pin()); err != nil { // for a new ticket
		t.Fatal(err)
	}
	now = leaf.cert.NotAfter.Add(time.Second)
	_, err = dial(ca.pin())
	if _, refused := errors.AsType[*client.PinError](err); !refused || !strings.Contains(err.Error(), "expired") {
		t.Errorf("after its end: %v", err)
	}
}

func TestNoCertificateIsRefused(t *testing.T) {
	config := client.PinnedTLS(time.Now, "x")
	if err := config.VerifyConnection(tls.ConnectionState{}); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Errorf("got %v", err)
	}
}
