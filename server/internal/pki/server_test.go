package pki_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/internal/durable/durabletest"
	"github.com/beckon-fleet/beckon/server/internal/pki"
)

func serving(t *testing.T, a *pki.Authority) *tls.Certificate {
	t.Helper()
	c, err := a.ServerCertificate()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestServerCertificateHoldsItsNamesAndNoMore(t *testing.T) {
	a := open(t, t.TempDir(), "Beckon.Example.COM", "192.0.2.7", "2001:db8::7", "localhost", "::ffff:192.0.2.8")
	c := serving(t, a).Leaf
	for _, name := range []string{api.ServerName, "localhost", "127.0.0.1", "::1", "beckon.example.com", "192.0.2.7", "2001:db8::7", "192.0.2.8"} {
		if err := c.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	if host, err := os.Hostname(); err == nil && c.VerifyHostname(host) != nil {
		t.Errorf("the machine's own name %s is not in it", host)
	}
	if len(c.IPAddresses) != 5 || slices.Contains(c.DNSNames, "127.0.0.1") {
		t.Errorf("addresses %v, names %v", c.IPAddresses, c.DNSNames)
	}
	if !slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) || c.KeyUsage != x509.KeyUsageDigitalSignature || c.IsCA {
		t.Errorf("usages %v, %v", c.ExtKeyUsage, c.KeyUsage)
	}
	if !c.NotAfter.Equal(start().Add(365 * 24 * time.Hour)) {
		t.Errorf("it ends at %v", c.NotAfter)
	}
	for _, name := range []string{"", "a..b", "https://x", "x:8443", "[::1]", "with space", "ünicode", "*.x", strings.Repeat("a", 64)} {
		if _, err := pki.Open(t.TempDir(), start, []string{name}); err == nil || !strings.Contains(err.Error(), "not a host name or an IP address") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// An agent sees the pinned CA inside the handshake and verifies the extra name
// under it.
func TestHandshakeShowsTheCA(t *testing.T) {
	a := open(t, t.TempDir())
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	server := tls.Server(near, &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.ServerCertificate() },
	})
	done := make(chan error, 1)
	go func() {
		_, err := server.Write([]byte("x")) // the handshake, and what the client waits for
		done <- err
	}()
	pool := x509.NewCertPool()
	pool.AddCert(a.CA())
	client := tls.Client(far, &tls.Config{RootCAs: pool, ServerName: api.ServerName, Time: start})
	if _, err := client.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	shown := client.ConnectionState().PeerCertificates
	if len(shown) != 2 || !shown[1].Equal(a.CA()) {
		t.Errorf("%d certificates were shown", len(shown))
	}
}

func TestServerCertificateIsReissuedInTime(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		after time.Duration
		names []string
		anew  bool
	}{
		"soon":                   {day, nil, false},
		"more than a third left": {240 * day, nil, false},
		"less than a third left": {245 * day, nil, true},
		"expired long ago":       {3000 * day, nil, true},
		"clock a little back":    {-time.Hour, nil, false},
		"clock far back":         {-2 * day, nil, true},
		"another name":           {day, []string{"new.example"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			now := start()
			a, err := pki.Open(dir, func() time.Time { return now }, nil)
			if err != nil {
				t.Fatal(err)
			}
			old := serving(t, a).Leaf
			now = now.Add(c.after)
			if c.names != nil { // given at a start only
				if a, err = pki.Open(dir, func() time.Time { return now }, c.names); err != nil {
					t.Fatal(err)
				}
			}
			got := serving(t, a)
			if got.Leaf.Equal(old) == c.anew {
				t.Fatalf("re-issued: %v", !c.anew)
			}
			if !serving(t, a).Leaf.Equal(got.Leaf) {
				t.Error("re-issued twice")
			}
			if now.Before(got.Leaf.NotBefore) || now.After(got.Leaf.NotAfter) {
				t.Error("it is not valid now")
			}
			b, err := pki.Open(dir, func() time.Time { return now }, c.names)
			if err != nil || !bytes.Equal(serving(t, b).Certificate[0], got.Certificate[0]) {
				t.Errorf("it was not stored: %v", err)
			}
		})
	}
}

func TestNothingOutlivesTheCA(t *testing.T) {
	now := start()
	a, err := pki.Open(t.TempDir(), func() time.Time { return now }, nil)
	if err != nil {
		t.Fatal(err)
	}
	now = a.CA().NotAfter.Add(-time.Hour)
	last := serving(t, a).Leaf
	_, c, err := a.NodeCertificate("node_1", request(t, nil))
	if err != nil || !last.NotAfter.Equal(a.CA().NotAfter) || !c.NotAfter.Equal(a.CA().NotAfter) {
		t.Errorf("the CA ends at %v, the server's at %v: %v", a.CA().NotAfter, last.NotAfter, err)
	}
	now = now.Add(59 * time.Minute)
	if !serving(t, a).Leaf.Equal(last) {
		t.Error("re-issued although it can get no longer")
	}
	now = a.CA().NotAfter
	if _, err := a.ServerCertificate(); err == nil || !strings.Contains(err.Error(), "the CA expired at 2046-12-01") {
		t.Errorf("want an expired CA, got %v", err)
	}
	if _, _, err := a.NodeCertificate("node_1", request(t, nil)); err == nil {
		t.Error("an expired CA issued a certificate")
	}
}

func TestServerCertificateForManyHandshakesAtOnce(t *testing.T) {
	var mu sync.Mutex
	now := start()
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	a, err := pki.Open(t.TempDir(), clock, nil)
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	now = now.Add(300 * 24 * time.Hour)
	mu.Unlock()
	var wg sync.WaitGroup
	shown := make([]*x509.Certificate, 20)
	for i := range shown {
		wg.Go(func() {
			if c, err := a.ServerCertificate(); err == nil {
				shown[i] = c.Leaf
			}
		})
	}
	wg.Wait()
	for _, c := range shown {
		if c == nil || !c.Equal(shown[0]) {
			t.Fatal("two were issued")
		}
	}
}

// A disk that takes no file keeps no agent out.
func TestRenewalWithoutDisk(t *testing.T) {
	dir := durabletest.SmallDisk(t, 256<<10)
	now := start()
	a, err := pki.Open(dir, func() time.Time { return now }, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := read(t, filepath.Join(dir, "server.pem"))
	durabletest.ReadOnly(t, dir)
	now = now.Add(400 * 24 * time.Hour)
	if c := serving(t, a).Leaf; now.After(c.NotAfter) || read(t, filepath.Join(dir, "server.pem")) != before {
		t.Errorf("it ends at %v", c.NotAfter)
	}
}
