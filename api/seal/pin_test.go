package seal_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
)

// newCA is a certificate whose pin a test can take.
func newCA(t *testing.T) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(1, 0), NotAfter: time.Unix(1<<32, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// between puts s between every two of text's pairs of digits.
func between(text, s string) string {
	var pairs []string
	for i := 0; i < len(text); i += 2 {
		pairs = append(pairs, text[i:i+2])
	}
	return strings.Join(pairs, s)
}

// Field case: a pin is copied from openssl, a browser, a mail or a script.
func TestPinInEverySpelling(t *testing.T) {
	want := seal.PinOf(newCA(t))
	lower := string(want)
	upper := strings.ToUpper(lower)
	for name, text := range map[string]string{
		"lower":               lower,
		"upper":               upper,
		"colons":              between(lower, ":"),
		"upper and colons":    between(upper, ":"),
		"spaces":              between(upper, " "),
		"tabs":                between(lower, "\t"),
		"two lines":           lower[:32] + "\n" + lower[32:],
		"prefix":              "sha256:" + lower,
		"upper prefix":        "SHA256:" + upper,
		"prefix with dash":    "SHA-256: " + between(upper, ":"),
		"openssl":             "SHA256 Fingerprint=" + between(upper, ":"),
		"newer openssl":       "sha256 Fingerprint=" + between(upper, ":") + "\n",
		"line break":          lower + "\n",
		"Windows' line break": lower + "\r\n",
		"blanks around":       "  " + lower + " \t",
	} {
		if got, err := seal.ParsePin(text); err != nil || got != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestPinThatCanNeverMatchIsRefused(t *testing.T) {
	ca := newCA(t)
	good := string(seal.PinOf(ca))
	sum := sha256.Sum256(ca.Raw)
	for name, text := range map[string]string{
		"empty":         "",
		"blank":         " \r\n",
		"prefix alone":  "sha256:",
		"SHA-1":         good[:40],
		"MD5":           good[:32],
		"one short":     good[:63],
		"one long":      good + "0",
		"a pair long":   good + "00",
		"twice":         good + good,
		"base64":        base64.StdEncoding.EncodeToString(sum[:]),
		"base64 prefix": "sha256/" + base64.StdEncoding.EncodeToString(sum[:]),
		"not hex":       "g" + good[1:],
		"0x":            "0x" + good,
		"SHA-1 prefix":  "sha1:" + good[:40],
		"wrong prefix":  "sha1:" + good,
		"dashes":        between(good, "-"),
		"a certificate": seal.EncodeCertificate(ca),
	} {
		got, err := seal.ParsePin(text)
		if !errors.Is(err, api.Invalid) || got != "" || !strings.Contains(err.Error(), "64 hex digits") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// The pin of the certificate is wanted, not that of its key.
func TestPinIsOfTheWholeCertificate(t *testing.T) {
	ca := newCA(t)
	signer, _ := newSigner(t)
	data, err := json.Marshal(api.TrustDocument{Generation: 1, CAs: []string{seal.EncodeCertificate(ca)}})
	if err != nil {
		t.Fatal(err)
	}
	key := sha256.Sum256(ca.RawSubjectPublicKeyInfo)
	for name, pin := range map[string]seal.Pin{
		"of the key": seal.Pin(hex.EncodeToString(key[:])), "of another CA": seal.PinOf(newCA(t)), "none": "",
	} {
		_, _, err := seal.OpenTrust(signer.Sign(seal.TagTrust, "", 1, data), "", pin)
		if !errors.Is(err, api.SignatureBad) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{"", "{", "[]", `{"cas": 7}`} {
		_, _, err := seal.OpenTrust(signer.Sign(seal.TagTrust, "", 1, []byte(text)), "", seal.PinOf(ca))
		if !errors.Is(err, api.SignatureBad) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What openssl prints is what ParsePin reads.
func TestPinIsAsOpenSSLPrintsIt(t *testing.T) {
	ca := newCA(t)
	cmd := exec.CommandContext(t.Context(), "openssl", "x509", "-noout", "-fingerprint", "-sha256")
	cmd.Stdin = strings.NewReader(seal.EncodeCertificate(ca))
	out, err := cmd.Output()
	switch {
	case err != nil && os.Getenv("BECKON_CI") == "1":
		t.Fatalf("install openssl: %v", err)
	case err != nil:
		t.Skipf("install openssl: %v", err)
	}
	if got, err := seal.ParsePin(string(out)); err != nil || got != seal.PinOf(ca) {
		t.Errorf("%s: %q, %v", out, got, err)
	}
}

func TestParseCertificateTakesOne(t *testing.T) {
	text := seal.EncodeCertificate(newCA(t))
	if _, err := seal.ParseCertificate(text + "\n"); err != nil {
		t.Error(err)
	}
	for name, bad := range map[string]string{
		"empty": "", "two": text + text, "something behind": text + "x", "half": text[:len(text)/2],
		"another block": strings.ReplaceAll(text, "CERTIFICATE", "PUBLIC KEY"),
	} {
		if _, err := seal.ParseCertificate(bad); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
