package auth_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
	"github.com/beckon-fleet/beckon/server/internal/auth"
	"github.com/beckon-fleet/beckon/server/internal/pki"
	"github.com/beckon-fleet/beckon/server/internal/servertest"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

func nodeCertificate(t *testing.T, a *pki.Authority, node string) *x509.Certificate {
	t.Helper()
	_, c, err := a.NodeCertificate(node, servertest.CSR(t, servertest.Key(t)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestIdentify(t *testing.T) {
	f := servertest.New(t, servertest.SQLite(t))
	other := servertest.New(t, servertest.SQLite(t))
	issued := f.Clock.Now()
	node := nodeCertificate(t, f.Authority, "node_1")
	stranger := nodeCertificate(t, other.Authority, "node_1")
	server, err := f.Authority.ServerCertificate()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := seal.ParseCertificate(f.Authority.TrustDocument("").SigningCertificates[0])
	if err != nil {
		t.Fatal(err)
	}
	forged := *node
	forged.Raw = nil
	forged.Signature = append([]byte{1}, node.Signature[1:]...)
	end := issued.Add(api.CertificateLife)
	for _, c := range []struct {
		what  string
		chain []*x509.Certificate
		at    time.Time
		grace time.Duration
		want  api.Code
	}{
		{"none", nil, issued, 0, api.CertificateMissing},
		{"a node's", []*x509.Certificate{node}, issued, 0, ""},
		{"with its CA behind it", []*x509.Certificate{node, f.Authority.CA()}, issued, 0, ""},
		{"another cluster's", []*x509.Certificate{stranger}, issued, 0, api.CertificateInvalid},
		{"another cluster's, with its CA", []*x509.Certificate{stranger, other.Authority.CA()}, issued, 0, api.CertificateInvalid},
		{"another cluster's, with ours behind it", []*x509.Certificate{stranger, node}, issued, 0, api.CertificateInvalid},
		{"the server's", []*x509.Certificate{server.Leaf}, issued, 0, api.CertificateInvalid},
		{"the signer's", []*x509.Certificate{signer}, issued, 0, api.CertificateInvalid},
		{"forged", []*x509.Certificate{&forged}, issued, 0, api.CertificateInvalid},
		{"at its beginning", []*x509.Certificate{node}, issued.Add(-api.Backdate), 0, ""},
		{"before it", []*x509.Certificate{node}, issued.Add(-api.Backdate - time.Second), 0, api.ClockSkew},
		{"just before its end", []*x509.Certificate{node}, end.Add(-time.Second), 0, ""},
		{"at its end", []*x509.Certificate{node}, end, 0, api.CertificateExpired},
		{"at its end, with grace", []*x509.Certificate{node}, end, api.RenewGrace, ""},
		{"at the end of the grace", []*x509.Certificate{node}, end.Add(api.RenewGrace - time.Second), api.RenewGrace, ""},
		{"after the grace", []*x509.Certificate{node}, end.Add(api.RenewGrace), api.RenewGrace, api.CertificateExpired},
		{"another cluster's, expired", []*x509.Certificate{stranger}, end.Add(time.Hour), api.RenewGrace, api.CertificateInvalid},
		{"before it, with grace", []*x509.Certificate{node}, issued.Add(-time.Hour), api.RenewGrace, api.ClockSkew},
	} {
		v := &auth.Verifier{CA: f.Authority.CA(), Clock: func() time.Time { return c.at }}
		got, err := v.Identify(&tls.ConnectionState{PeerCertificates: c.chain}, c.grace)
		if c.want != "" {
			if !errors.Is(err, c.want) || got != (auth.Caller{}) {
				t.Errorf("%s: want %s, got %+v, %v", c.what, c.want, got, err)
			}
			continue
		}
		if err != nil || got.Node != "node_1" || !got.Until.Equal(end) {
			t.Errorf("%s: got %+v, %v", c.what, got, err)
		}
	}
	if _, err := (&auth.Verifier{}).Identify(nil, 0); !errors.Is(err, api.CertificateMissing) {
		t.Errorf("without TLS: %v", err)
	}
}

// An agent whose certificate is too old to be renewed is told so, and not to
// renew it.
func TestExpiredSaysWhatToDo(t *testing.T) {
	f := servertest.New(t, servertest.SQLite(t))
	node := nodeCertificate(t, f.Authority, "node_1")
	f.Clock.Move(api.CertificateLife + api.RenewGrace)
	v := &auth.Verifier{CA: f.Authority.CA(), Clock: f.Clock.Now}
	for grace, want := range map[time.Duration]string{0: "renew it", api.RenewGrace: "join again"} {
		_, err := v.Identify(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{node}}, grace)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("grace %v: want %q, got %v", grace, want, err)
		}
	}
}

func TestCallerOfAContext(t *testing.T) {
	if got := auth.From(t.Context()); got != (auth.Caller{}) {
		t.Errorf("nobody is %+v", got)
	}
	c := auth.Caller{Node: "node_1", Protocol: 1}
	if got := auth.From(auth.With(t.Context(), c)); got != c {
		t.Errorf("got %+v", got)
	}
}

func TestOperatorTokens(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		o := &auth.Operators{Store: f.Store}
		if any, err := o.Any(t.Context()); any || err != nil {
			t.Errorf("at first: %v, %v", any, err)
		}
		token, err := o.Mint(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		second, err := o.Mint(t.Context())
		if err != nil || second == token || !strings.HasPrefix(token, auth.OperatorPrefix) {
			t.Fatalf("minted %q and %q, %v", token, second, err)
		}
		if any, err := o.Any(t.Context()); !any || err != nil {
			t.Errorf("then: %v, %v", any, err)
		}
		f.Do(t, `DELETE FROM operator_tokens WHERE hash = $1`, auth.TokenHash(second))
		join := f.Token(t, api.CreateJoinTokenRequest{}).Token
		for header, want := range map[string]api.Code{
			"":                            api.OperatorTokenMissing,
			"Bearer":                      api.OperatorTokenMissing,
			"Bearer ":                     api.OperatorTokenInvalid,
			token:                         api.OperatorTokenMissing,
			"Basic " + token:              api.OperatorTokenMissing,
			"Bearer" + token:              api.OperatorTokenMissing,
			"Token Bearer " + token:       api.OperatorTokenMissing,
			"Bearer " + token:             "",
			"bearer " + token:             "",
			"Bearer   " + token + " ":     "",
			"Bearer " + token[:20]:        api.OperatorTokenInvalid,
			"Bearer " + token + "x":       api.OperatorTokenInvalid,
			"Bearer " + token + " x":      api.OperatorTokenInvalid,
			"Bearer a " + token:           api.OperatorTokenInvalid,
			"Bearer " + second:            api.OperatorTokenInvalid, // it is there no more
			"Bearer " + join:              api.OperatorTokenInvalid,
			"Bearer bkn_op_' OR '1' = '1": api.OperatorTokenInvalid,
			"Bearer \xff\xfe":             api.OperatorTokenInvalid,
		} {
			id, err := o.Check(&http.Request{Header: http.Header{"Authorization": {header}}})
			if want == "" {
				if err != nil || !strings.HasPrefix(id, "opt_") {
					t.Errorf("%q: %q, %v", header, id, err)
				}
				continue
			}
			if !errors.Is(err, want) || id != "" {
				t.Errorf("%q: want %s, got %q, %v", header, want, id, err)
			}
			if err != nil && (strings.Contains(err.Error(), token[7:20]) || strings.Contains(err.Error(), second[7:20])) {
				t.Errorf("%q: the error repeats the token: %v", header, err)
			}
		}
		if n := f.Count(t, `FROM operator_tokens WHERE hash = $1 OR hash LIKE 'bkn%'`, token); n != 0 {
			t.Error("a token is stored as it is")
		}
	})
}

func TestTokensDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		token, hash := auth.NewToken(auth.JoinPrefix)
		if seen[token] || len(token) < len(auth.JoinPrefix)+52 || hash != auth.TokenHash(token) || strings.Contains(hash, token) {
			t.Fatalf("token %q, hash %q", token, hash)
		}
		seen[token] = true
	}
}

func TestFailedStoreIsNoVerdict(t *testing.T) {
	st, err := store.Open(t.Context(), servertest.SQLite(t), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	st.Close()
	_, err = (&auth.Operators{Store: st}).Check(&http.Request{Header: http.Header{"Authorization": {"Bearer bkn_op_x"}}})
	if err == nil || errors.Is(err, api.OperatorTokenInvalid) {
		t.Errorf("a database that cannot be read says %v", err)
	}
}
