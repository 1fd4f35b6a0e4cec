package e2e

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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
	signer := trustedSigner(t, dir)
	document := `{"id": "cmd_1", "text": "Grüß <b>\u0000\u2028 \ud83d\ude00"}` + " \u2028\n"
	good := signer.Sign(seal.TagCommand, "node_1", 1796126400000, []byte(document))
	var files []string
	add := func(name string, v any) { files = append(files, writeJSON(t, filepath.Join(dir, name), v)) }
	for name, doctor := range map[string]func(e *api.Envelope){
		"data":         func(e *api.Envelope) { e.Data = "[" + e.Data[1:] },
		"more data":    func(e *api.Envelope) { e.Data += " " },
		"seq":          func(e *api.Envelope) { e.Seq++ },
		"key":          func(e *api.Envelope) { e.Key = "0123456789abcdef" },
		"path":         func(e *api.Envelope) { e.Key = "../" + filepath.Base(dir) + "/" + e.Key },
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
	verify := `tmp=$1 && shift && for f in "$@"; do if verify "$f" beckon-command:v1 node_1 "$tmp"; then echo "${f##*/}"; fi; done`
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

// signer certifies a key for some usages.
func (a authority) signer(t *testing.T, public any, critical bool, usages ...asn1.ObjectIdentifier) string {
	t.Helper()
	value, err := asn1.Marshal(usages)
	if err != nil {
		t.Fatal(err)
	}
	return a.certify(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Unix(1, 0), NotAfter: time.Unix(2, 0), // its time does not matter
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Critical: critical, Value: value}},
	}, public)
}

// Only who the pinned CA made a signer, and nothing else, can say whom to trust.
func TestCurlAgentTrusts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ours, theirs := newAuthority(t), newAuthority(t)
	signer, public := newSigner(t)
	stranger, _ := newSigner(t)
	usage, client := seal.SignerUsage, asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 2}
	ca, other, good := seal.EncodeCertificate(ours.cert), seal.EncodeCertificate(theirs.cert), ours.signer(t, public, true, usage)
	var files []string
	for name, c := range map[string]struct {
		cas, signers []string
		signer       seal.Signer
		node         string
	}{
		"good":              {},
		"good, of two CAs":  {cas: []string{other, ca}},
		"no CA":             {cas: []string{""}},
		"another CA":        {cas: []string{other}},
		"by another CA":     {cas: []string{ca, other}, signers: []string{theirs.signer(t, public, true, usage)}},
		"not critical":      {signers: []string{ours.signer(t, public, false, usage)}},
		"two usages":        {signers: []string{ours.signer(t, public, true, usage, client)}},
		"a node's usage":    {signers: []string{ours.signer(t, public, true, client)}},
		"another algorithm": {signers: []string{good, ours.signer(t, theirs.key.Public(), true, usage)}},
		"one of two":        {signers: []string{good, ours.signer(t, public, false, usage)}},
		"another signer":    {signer: stranger},
		"another node":      {node: "node_2"},
	} {
		if c.cas == nil {
			c.cas = []string{ca}
		}
		if c.signers == nil {
			c.signers = []string{good}
		}
		if c.signer.Private == nil {
			c.signer = signer
		}
		data, err := json.Marshal(api.TrustDocument{Generation: 1, CAs: c.cas, SigningCertificates: c.signers})
		if err != nil {
			t.Fatal(err)
		}
		e := c.signer.Sign(seal.TagTrust, cmp.Or(c.node, "node_1"), 7, data)
		files = append(files, writeJSON(t, filepath.Join(dir, name), e))
	}
	check := `tmp=$1 pin=$2 && shift 2 && for f in "$@"; do if check_trust "$f" node_1 2>/dev/null; then echo "${f##*/}"; fi; done`
	got := sourced(t, check, append([]string{dir, string(seal.PinOf(ours.cert))}, files...)...)
	slices.Sort(got)
	if !slices.Equal(got, []string{"good", "good, of two CAs"}) {
		t.Errorf("these are trusted: %q", got)
	}
}

// Only our server's own words are a verdict; each has its own consequence.
func TestCurlAgentObeysCodes(t *testing.T) {
	t.Parallel()
	const problem = "application/problem+json"
	say := func(status int, code string) string {
		return fmt.Sprintf(`{"status": %d, "code": "%s", "detail": "d"}`, status, code)
	}
	answers := []struct {
		status           int
		kind, body, wait string
		want             string
	}{
		{200, "application/json; charset=utf-8", `{}`, "", "yes"},
		{200, "application/json", `{} {}`, "", "nap [12]"},
		{200, "application/json", `{"cut`, "", "nap [12]"},
		{200, "application/json", ``, "", "nap [12]"},
		{200, "text/html", `{}`, "", "nap [12]"},
		{302, "application/json", `{}`, "", "nap [12]"},
		{304, "", ``, "", "nap [12]"},
		{403, "text/html", say(403, "node_revoked"), "", "nap [12]"},
		{403, "application/json", say(403, "node_revoked"), "", "nap [12]"},
		{403, problem, say(404, "node_revoked"), "", "nap [12]"},
		{403, problem, say(403, "node_revoked"), "", "exit 77"},
		{401, problem, say(401, "node_unknown"), "", "nap 300"},
		{401, problem, say(401, "certificate_expired"), "", "renew"},
		{426, problem, say(426, "upgrade_required"), "", "nap 300"},
		{404, problem, say(404, "not_found"), "", "no not_found"},
		{409, problem, say(409, "acked_elsewhere"), "", "no acked_elsewhere"},
		{409, problem, say(409, "of_a_newer_server"), "", "nap [12]"},
		{410, problem, say(410, "command_canceled"), "", "no command_canceled"},
		{503, problem, say(503, "unavailable"), "7", "nap 7"},
		{503, problem, say(503, "unavailable"), "4000", "nap 300"},
		{503, problem, say(503, "unavailable"), "Mon, 30 Nov 2026 09:00:00 GMT", "nap [12]"},
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Path[1:])
		a := answers[n]
		w.Header().Set("Content-Type", a.kind)
		w.Header().Set("X-Protocol-Max", "1")
		if a.wait != "" {
			w.Header().Set("Retry-After", a.wait)
		}
		w.WriteHeader(a.status)
		fmt.Fprint(w, a.body)
	}))
	t.Cleanup(server.Close)
	out := sourced(t, `tmp=$1 state=$1 address=$2 as=(--insecure) joined=yes failures=0
		say() { :; }
		nap() { echo "nap ${1%.*}" && exit; }
		renew() { echo renew && exit; }
		for ((n = 0; n < $3; n++)); do
			(if ask "/$n"; then echo yes; else echo "no $code"; fi) || echo "exit $?"
		done`, t.TempDir(), server.Listener.Addr().String(), strconv.Itoa(len(answers)))
	for n, a := range answers {
		if n >= len(out) || !regexp.MustCompile("^"+a.want+"$").MatchString(out[n]) {
			t.Errorf("%d %s %s: want %s, got %q", a.status, a.kind, a.body, a.want, out[min(n, len(out)-1)])
		}
	}
}
