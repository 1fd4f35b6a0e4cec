package e2e

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
)

func writeJSON(t *testing.T, path string, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func newSigner(t *testing.T) (seal.Signer, ed25519.PublicKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return seal.Signer{ID: seal.KeyID(public), Private: private}, public
}

// trustedSigner puts its key into a folder, where the script keeps those that
// it trusts.
func trustedSigner(t *testing.T, dir string) seal.Signer {
	t.Helper()
	signer, public := newSigner(t)
	der, err := x509.MarshalPKIXPublicKey(public)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, signer.ID), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// What was doctored on the way is not taken for the control plane's.
func TestCurlAgentVerifies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trust := filepath.Join(dir, "trust")
	if err := os.Mkdir(trust, 0o700); err != nil {
		t.Fatal(err)
	}
	signer := trustedSigner(t, trust)
	document := `{"id": "cmd_1", "text": "Grüß <b>\u0000\u2028 \ud83d\ude00"}` + " \u2028\n"
	good := signer.Sign(seal.TagCommand, "node_1", 1796126400000, []byte(document))
	var files []string
	add := func(name string, v any) { files = append(files, writeJSON(t, filepath.Join(dir, name), v)) }
	for name, doctor := range map[string]func(e *api.Envelope){
		"data":         func(e *api.Envelope) { e.Data = "[" + e.Data[1:] },
		"more data":    func(e *api.Envelope) { e.Data += " " },
		"seq":          func(e *api.Envelope) { e.Seq++ },
		"key":          func(e *api.Envelope) { e.Key = "0123456789abcdef" },
		"path":         func(e *api.Envelope) { e.Key = "../trust/" + e.Key },
		"signature":    func(e *api.Envelope) { e.Signature = slices.Concat([]byte{e.Signature[0] ^ 1}, e.Signature[1:]) },
		"no signature": func(e *api.Envelope) { e.Signature = nil },
		"node":         func(e *api.Envelope) { *e = signer.Sign(seal.TagCommand, "node_2", e.Seq, []byte(e.Data)) },
		"tag":          func(e *api.Envelope) { *e = signer.Sign(seal.TagTrust, "node_1", e.Seq, []byte(e.Data)) },
		"seq 0":        func(e *api.Envelope) { *e = signer.Sign(seal.TagCommand, "node_1", 0, []byte(e.Data)) },
	} {
		e := good
		doctor(&e)
		add(name, e)
	}
	add("text", "text")
	add("nothing", nil)
	add("good", good)
	verify := `tmp=$1 state=$1 node=node_1 && shift && for f in "$@"; do if verify "$f"; then echo "${f##*/}"; fi; done`
	if got := sourced(t, verify, append([]string{dir}, files...)...); !slices.Equal(got, []string{"good"}) {
		t.Errorf("these verify: %q", got)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "data")); string(data) != document {
		t.Errorf("the data is %q, %v", data, err)
	}
}

// authority is a CA that may be of the pin, or not.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := authority{&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, NotBefore: time.Unix(1, 0), NotAfter: time.Unix(1<<32, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, key}
	a.cert, err = seal.ParseCertificate(a.certify(t, a.cert, key.Public()))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (a authority) certify(t *testing.T, template *x509.Certificate, public any) string {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// serves is a server with a certificate of a's. It has cas in its trust
// document, and refuses each join.
func (a authority) serves(t *testing.T, cas []string) (address string, joins *atomic.Int32) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode([]byte(a.certify(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Unix(1, 0), NotAfter: time.Unix(1<<32, 0),
		DNSNames: []string{api.ServerName}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, key.Public())))
	signer, _ := newSigner(t)
	joins = new(atomic.Int32)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == api.Join.Path {
			joins.Add(1)
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"status": 409, "code": "token_used", "then": "give_up", "detail": "d"}`)
			return
		}
		data, err := json.Marshal(api.TrustDocument{Generation: 1, CAs: cas})
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(signer.Sign(seal.TagTrust, "", 7, data)) // who does not want it has gone
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{block.Bytes, a.cert.Raw}, PrivateKey: key}}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), joins
}

// Only a server that holds a key of the pinned CA's sees the token, whatever a
// trust document says.
func TestCurlAgentTrusts(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	ca, other := seal.EncodeCertificate(ours.cert), seal.EncodeCertificate(theirs.cert)
	const unproved, weather = "the token was not sent", "nap"
	for name, c := range map[string]struct {
		server authority
		cas    []string
		want   string
	}{
		"good":                     {ours, []string{ca}, "token_used"},
		"good, of two CAs":         {ours, []string{other, ca, other}, "token_used"},
		"good, with more behind":   {ours, []string{ca + other}, "token_used"},
		"no CA":                    {theirs, nil, unproved},
		"no certificate":           {theirs, []string{"", "text"}, unproved},
		"another CA":               {theirs, []string{other}, unproved},
		"another CA before":        {theirs, []string{other + ca}, unproved},
		"replayed":                 {theirs, []string{ca}, weather},
		"replayed, with another":   {theirs, []string{other, ca, other}, weather},
		"replayed, another behind": {theirs, []string{ca + other}, weather},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			address, joins := c.server.serves(t, c.cas)
			out := strings.Join(sourced(t, `mkdir "$1/tmp" && tmp=$1/tmp state=$1 address=$2 pin=$3 joined='' failures=0
				nap() { echo nap && exit; }
				(join token) || true`, dir, address, string(seal.PinOf(ours.cert))), "\n")
			if sent := joins.Load() > 0; !strings.Contains(out, c.want) || sent != (c.want == "token_used") {
				t.Errorf("want %q, got the token sent: %t\n%s", c.want, sent, out)
			}
		})
	}
}

// Only our server's own words are a verdict; each has its own consequence.
func TestCurlAgentObeysCodes(t *testing.T) {
	t.Parallel()
	const problem = "application/problem+json"
	say := func(status int, code, then string) string {
		return fmt.Sprintf(`{"status": %d, "code": "%s", "then": "%s", "detail": "d"}`, status, code, then)
	}
	answers := []struct {
		status     int
		kind, body string
		want       string
	}{
		{200, "application/json; charset=utf-8", `{}`, "yes"},
		{200, "application/json", `{} {}`, "nap [12]"},
		{200, "application/json", `{"cut`, "nap [12]"},
		{200, "application/json", ``, "nap [12]"},
		{200, "text/html", `{}`, "nap [12]"},
		{302, "application/json", `{}`, "nap [12]"},
		{304, "", ``, "nap [12]"},
		{403, "text/html", say(403, "node_revoked", "stop"), "nap [12]"},
		{403, "application/json", say(403, "node_revoked", "stop"), "nap [12]"},
		{403, problem, say(404, "node_revoked", "stop"), "nap [12]"},
		{403, problem, say(403, "node_revoked", "stop"), "exit 77"},
		{401, problem, say(401, "node_unknown", "slow"), "nap 300"},
		{401, problem, say(401, "certificate_expired", "slow"), "renew"},
		{426, problem, say(426, "upgrade_required", "slow"), "nap 300"},
		{404, problem, say(404, "not_found", "give_up"), "no not_found"},
		{409, problem, say(409, "acked_elsewhere", "give_up"), "no acked_elsewhere"},
		{409, problem, say(409, "of_a_newer_server", ""), "nap [12]"},
		{409, problem, say(409, "of_a_newer_server", "retry"), "nap [12]"},
		{409, problem, say(409, "of_a_newer_server", "wait_for_it"), "nap [12]"},
		{409, problem, say(409, "of_a_newer_server", "stop"), "nap [12]"},
		{409, problem, say(409, "of_a_newer_server", "slow"), "nap 300"},
		{409, problem, say(409, "of_a_newer_server", "give_up"), "no of_a_newer_server"},
		{409, problem, `{"status": 409, "code": "of_an_older_server"}`, "nap [12]"},
		{409, problem, `{"status": 409, "then": "give_up"}`, "nap [12]"},
		{410, problem, say(410, "command_canceled", "give_up"), "no command_canceled"},
		{503, problem, say(503, "unavailable", "retry"), "nap [12]"},
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(path.Base(r.URL.Path))
		a := answers[n]
		w.Header().Set("Content-Type", a.kind)
		w.Header().Set("X-Protocol-Max", "1")
		w.WriteHeader(a.status)
		fmt.Fprint(w, a.body)
	}))
	t.Cleanup(server.Close)
	out := sourced(t, `tmp=$1 state=$1 address=$2 as=(--insecure) joined=yes failures=0
		say() { :; }
		nap() { echo "nap ${1%.*}" && exit; }
		renew() { echo renew && exit; }
		for ((n = 0; n < $3; n++)); do
			(if ask "$n"; then echo yes; else echo "no $code"; fi) || echo "exit $?"
		done`, t.TempDir(), server.Listener.Addr().String(), strconv.Itoa(len(answers)))
	for n, a := range answers {
		if n >= len(out) || !regexp.MustCompile("^"+a.want+"$").MatchString(out[n]) {
			t.Errorf("%d %s %s: want %s, got %q", a.status, a.kind, a.body, a.want, out[min(n, len(out)-1)])
		}
	}
}
