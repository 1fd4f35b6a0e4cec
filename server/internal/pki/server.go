package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/internal/durable"
)

// serverNames are all names of the server, sorted: those that every server
// has, this machine's, and the given ones.
func serverNames(given []string) ([]string, error) {
	names := []string{api.ServerName, "localhost", "127.0.0.1", "::1"}
	if host, err := os.Hostname(); err == nil {
		if name, err := serverName(host); err == nil {
			names = append(names, name)
		}
	}
	for _, text := range given {
		name, err := serverName(text)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// serverName is the one spelling of a host name or an IP address.
func serverName(text string) (string, error) {
	if ip, err := netip.ParseAddr(text); err == nil {
		return ip.Unmap().WithZone("").String(), nil
	}
	name := strings.TrimSuffix(strings.ToLower(text), ".")
	for label := range strings.SplitSeq(name, ".") {
		odd := func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' }
		if label == "" || len(label) > 63 || len(name) > 253 || strings.ContainsFunc(label, odd) {
			return "", fmt.Errorf("%q is not a host name or an IP address: give the server's name alone, without port or scheme", text)
		}
	}
	return name, nil
}

// loadServer takes the server's certificate from its file. Nobody trusts it but
// through the CA, so a damaged one is put aside and made anew.
func (a *Authority) loadServer() error {
	b, err := readBundle(a.path(serverFile))
	if err == nil {
		err = a.checkServer(b)
	}
	switch {
	case err == nil:
		a.server = b
	case !errors.Is(err, fs.ErrNotExist):
		moved, moveErr := durable.Quarantine(a.path(serverFile), a.clock())
		if moveErr != nil {
			return moveErr
		}
		slog.Warn("the server's certificate is issued anew", "because", err, "kept", moved)
	}
	if a.serverDue(a.clock()) {
		return a.issueServer(a.clock())
	}
	return nil
}

func (a *Authority) checkServer(b bundle) error {
	if err := b.cert.CheckSignatureFrom(a.ca.cert); err != nil {
		return fmt.Errorf("it is not of this CA: %w", err)
	}
	if !slices.Equal(b.cert.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) || len(b.cert.UnknownExtKeyUsage) > 0 {
		return errors.New("it is not a server's")
	}
	return nil
}

// renewServer re-issues the certificate when that is due. What cannot be
// stored still serves: the next start issues another.
func (a *Authority) renewServer() error {
	now := a.clock()
	if !a.serverDue(now) {
		return nil
	}
	err := a.issueServer(now)
	if err != nil && a.serverDue(now) {
		return err
	}
	if err != nil {
		slog.Warn("the server's new certificate is not stored", "because", err)
	}
	return nil
}

// serverDue reports whether less than a third of the certificate's life is
// left, unless the CA has no more to give, or its names or the clock have
// changed.
func (a *Authority) serverDue(now time.Time) bool {
	c := a.server.cert
	if c == nil || now.Before(c.NotBefore) || !slices.Equal(namesOf(c), a.names) {
		return true
	}
	last := c.NotAfter.Equal(a.ca.cert.NotAfter) && now.Before(c.NotAfter)
	return !last && c.NotAfter.Sub(now) < c.NotAfter.Sub(c.NotBefore)/3
}

func namesOf(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	slices.Sort(names)
	return names
}

// issueServer makes a new key and certificate, and then stores them.
func (a *Authority) issueServer(now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make server key: %w", err)
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: api.ServerName},
		NotBefore:   now.Add(-backdate),
		NotAfter:    now.Add(serverLife),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range a.names {
		if ip, err := netip.ParseAddr(name); err == nil {
			template.IPAddresses = append(template.IPAddresses, ip.AsSlice())
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	cert, err := a.issue(template, now, key.Public())
	if err != nil {
		return err
	}
	a.server = bundle{key, cert}
	return a.server.write(a.path(serverFile))
}
