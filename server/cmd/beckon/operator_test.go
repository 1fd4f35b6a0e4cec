package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"io"
	"log"
	"math/big"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
	"github.com/beckon-fleet/beckon/internal/cli"
	urfave "github.com/urfave/cli/v2"
)

// alone runs a line without the flags that tests give elsewhere.
func alone(words ...string) (code int, stdout, stderr string) {
	var out, note bytes.Buffer
	code = cli.Run(program(), append([]string{"beckon"}, words...), &out, &note)
	return code, out.String(), note.String()
}

func TestCredentials(t *testing.T) {
	t.Setenv("BECKON_URL", "")
	t.Setenv("BECKON_TOKEN", "")
	mint := "`beckon server token --data DIR` makes an operator token"
	for _, words := range [][]string{{"status"}, {"node", "list"}, {"deploy", "web"}, {"status", "--token", " "}, {"status", "--token", "a\nb"}} {
		code, out, note := alone(words...)
		if code != 3 || out != "" || !strings.Contains(note, mint) {
			t.Errorf("%q: exit %d, %s%s", words, code, out, note)
		}
	}
	code, _, note := alone("status", "-o", "json")
	var problem api.Error
	if err := json.Unmarshal([]byte(note), &problem); err != nil || code != 3 || problem.Code != api.OperatorTokenMissing {
		t.Errorf("exit %d, %s", code, note)
	}
	f := newFar(t)
	answers(f, api.GetStatus, api.Status{Version: "9"})
	code, out, note := alone("status", "--url", f.URL+"/", "--token", "wrong")
	if code != 3 || out != "" || !strings.HasPrefix(note, "beckon: the operator token is not known here\nhint: ") || !strings.Contains(note, mint) {
		t.Errorf("exit %d, %s%s", code, out, note)
	}
	t.Setenv("BECKON_URL", f.URL)
	t.Setenv("BECKON_TOKEN", "bkn_op_x\n")
	if code, out, note = alone("status"); code != 0 || !strings.Contains(out, "version:        9\n") {
		t.Errorf("by the environment: exit %d, %s%s", code, out, note)
	}
	if code, _, _ = alone("status", "--token", "wrong"); code != 3 {
		t.Errorf("the flag does not win: exit %d", code)
	}
	if _, out, _ = alone("status", "--help"); strings.Contains(out, "bkn_op_x") || strings.Contains(out, f.URL) {
		t.Errorf("the help shows what the environment holds:\n%s", out)
	}
}

func TestAddresses(t *testing.T) {
	for _, address := range []string{"x", "127.0.0.1:8080", "ftp://x", "http://", "http://x?y", "http://%zz", ":"} {
		code, out, note := alone("status", "--token", "x", "--url", address)
		if code != 2 || out != "" || !strings.Contains(note, "http://127.0.0.1:8080") {
			t.Errorf("%s: exit %d, %s", address, code, note)
		}
	}
	if code, _, note := alone("status", "--token", "x", "--url", "http://u:secret@x"); code != 2 || strings.Contains(note, "secret") {
		t.Errorf("exit %d, %s", code, note)
	}
}

// secure is a TLS server whose certificate is the control plane's, under a CA
// of its own.
func secure(t *testing.T) (*far, seal.Pin) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(template, parent *x509.Certificate) *x509.Certificate {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(raw)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	ca := issue(root, root)
	leaf := issue(&x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{api.ServerName}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, ca)
	f := newFar(t)
	plain := f.Server
	f.Server = httptest.NewUnstartedServer(plain.Config.Handler)
	f.Server.Config.ErrorLog = log.New(io.Discard, "", 0)
	f.Server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Raw, ca.Raw}, PrivateKey: key}}}
	f.Server.StartTLS()
	t.Cleanup(f.Server.Close)
	return f, seal.PinOf(ca)
}

func TestPin(t *testing.T) {
	f, pin := secure(t)
	answers(f, api.GetStatus, api.Status{Version: "9"})
	code, out, note := f.run("status")
	if code != 6 || out != "" || !strings.Contains(note, "BECKON_CA_SHA256") {
		t.Errorf("without a pin: exit %d, %s%s", code, out, note)
	}
	t.Setenv(envPin, "SHA256:"+strings.ToUpper(string(pin)))
	if code, out, note = f.run("status"); code != 0 {
		t.Errorf("pinned: exit %d, %s%s", code, out, note)
	}
	t.Setenv(envPin, strings.Repeat("0", 64))
	code, out, note = f.run("status")
	if code != 6 || out != "" || !strings.Contains(note, "this is not the pinned control plane") {
		t.Errorf("wrong pin: exit %d, %s%s", code, out, note)
	}
	t.Setenv(envPin, "12:34")
	if code, _, note = f.run("status"); code != 2 || !strings.Contains(note, envPin) {
		t.Errorf("half a pin: exit %d, %s", code, note)
	}
	t.Setenv(envPin, string(pin))
	if code, _, note = newFar(t).run("status"); code != 2 || !strings.Contains(note, "use https://") {
		t.Errorf("plain HTTP: exit %d, %s", code, note)
	}
}

func TestEveryCommandSaysWhatItIs(t *testing.T) {
	var walk func(path []string, commands []*urfave.Command)
	walk = func(path []string, commands []*urfave.Command) {
		for _, c := range commands {
			line := append(slices.Clone(path), c.Name)
			code, out, note := alone(append(line, "--help")...)
			if code != 0 || note != "" || c.Usage == "" || !strings.HasPrefix(out, "beckon "+strings.Join(line, " ")+": "+c.Usage+"\n") {
				t.Errorf("%q: exit %d, %s%s", line, code, out, note)
			}
			walk(line, c.Subcommands)
		}
	}
	walk(nil, program().Commands)
}

func TestServerThatIsNoServer(t *testing.T) {
	f := newFar(t)
	code, out, note := f.run("status") // the standard library's own 404
	if code != 6 || out != "" || !strings.HasPrefix(note, "beckon: not an answer of the control plane: status 404") {
		t.Errorf("exit %d, %s%s", code, out, note)
	}
	f.Close()
	code, out, note = f.run("node list -o json")
	var problem struct{ Code, Detail, Hint string }
	if err := json.Unmarshal([]byte(note), &problem); err != nil || code != 6 || out != "" || problem.Code != "unreachable" || problem.Hint == "" {
		t.Errorf("exit %d, %s%s", code, out, note)
	}
}
