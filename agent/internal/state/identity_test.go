package state_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/state"
	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
)

// Field case: a crash between key and certificate, or a mixed-up backup. Parts
// that do not belong together are no identity.
func TestPartsThatDoNotBelongTogether(t *testing.T) {
	a := newAuthority(t)
	good, other := a.identity("node_1"), a.identity("node_1")
	foreign := newAuthority(t).identity("node_1")
	for name, change := range map[string]func(id *state.Identity){
		"certificate of the next generation": func(id *state.Identity) { id.Certificate = other.Certificate },
		"key of the next generation":         func(id *state.Identity) { id.Key = other.Key },
		"certificate of another node":        func(id *state.Identity) { id.NodeID = "node_2" },
		"certificate of another CA":          func(id *state.Identity) { id.Certificate, id.Key = foreign.Certificate, foreign.Key },
		"another CA":                         func(id *state.Identity) { id.CAs = foreign.CAs },
		"another CA in front":                func(id *state.Identity) { id.CAs = append(slices.Clone(foreign.CAs), id.CAs...) },
		"its own certificate as the CA":      func(id *state.Identity) { id.CAs = []string{id.Certificate} },
		"no CA":                              func(id *state.Identity) { id.CAs = nil },
		"no PEM as the CA":                   func(id *state.Identity) { id.CAs = []string{"CA"} },
		"no key":                             func(id *state.Identity) { id.Key = "" },
		"no certificate":                     func(id *state.Identity) { id.Certificate = "" },
		"two certificates":                   func(id *state.Identity) { id.Certificate += other.Certificate },
		"no node":                            func(id *state.Identity) { id.NodeID = "" },
		"no server":                          func(id *state.Identity) { id.Server = "" },
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t)
			p.must(p.Keep(good))
			bad := *good
			change(&bad)
			if err := p.Joined(&bad); err == nil || !strings.Contains(err.Error(), "the identity was refused") {
				t.Errorf("a join took it: %v", err)
			}
			p.holds(older)
			p.must(p.Keep(&bad)) // what an attacker or a restore would leave
			p.reopen()
			p.is(good)
			p.holds(older, newer+aside)
		})
	}
}

func TestRenewedCertificateMustBeForTheNewKeyAndThisNode(t *testing.T) {
	a := newAuthority(t)
	id := a.identity("node_1")
	key, csr := a.newKey()
	_, otherCSR := a.newKey()
	for name, certificate := range map[string]string{
		"for another key":    a.certificate("node_1", otherCSR),
		"for the old key":    id.Certificate,
		"of another node":    a.certificate("node_2", csr),
		"from another CA":    newAuthority(t).certificate("node_1", csr),
		"none":               "",
		"a page":             "<html>",
		"with one behind it": a.certificate("node_1", csr) + id.Certificate,
	} {
		if next, err := id.WithCertificate(key, certificate); next != nil || err == nil || !strings.Contains(err.Error(), "the certificate was refused") {
			t.Errorf("%s: %v, %v", name, next, err)
		}
	}
	next, err := id.WithCertificate(key, a.certificate("node_1", csr))
	if err != nil {
		t.Fatal(err)
	}
	p := open(t)
	p.must(p.Keep(id))
	p.must(p.Keep(next))
	p.is(next)
	got, err := p.Identity()
	p.must(err)
	if len(got.TLS().Certificate) != 1 || !got.ValidUntil().Equal(noon.Add(api.CertificateLife)) || next.Server != id.Server || next.Name != id.Name {
		t.Errorf("got %+v", got)
	}
	if pin, err := got.Pin(); err != nil || pin != seal.PinOf(a.cert) {
		t.Errorf("the pin is %s: %v", pin, err)
	}
	if id.Key == next.Key {
		t.Error("the key stayed")
	}
}

func TestJoinKeyIsTheSameForTheSameToken(t *testing.T) {
	p := open(t)
	first, err := p.JoinKey("bkn_join_a")
	p.must(err)
	csr, err := first.CSR()
	p.must(err)
	p.reopen() // a crash: the answer to the join was lost
	again, err := p.JoinKey("bkn_join_a")
	p.must(err)
	if again.PEM != first.PEM {
		t.Error("the repeat of a join has another key: its token is spent")
	}
	csrAgain, err := again.CSR()
	p.must(err)
	if publicKey(t, csr) != publicKey(t, csrAgain) {
		t.Error("the CSR is of another key")
	}
	other, err := p.JoinKey("bkn_join_b")
	p.must(err)
	if other.PEM == first.PEM {
		t.Error("another token has the same key")
	}
	data, err := os.ReadFile(p.Path("joining.json"))
	p.must(err)
	if strings.Contains(string(data), "bkn_join") {
		t.Errorf("the token is on the disk: %s", data)
	}
}

func publicKey(t *testing.T, csr string) string {
	t.Helper()
	block, _ := pem.Decode([]byte(csr))
	if block == nil {
		t.Fatal("no PEM")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if request.Subject.String() != "" || len(request.Extensions) != 0 {
		t.Errorf("the request says more than its key: %v", request)
	}
	return string(request.RawSubjectPublicKeyInfo)
}

func TestDamagedJoinBeginsAnew(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			p := open(t)
			first, err := p.JoinKey("bkn_join_a")
			p.must(err)
			p.must(damage(p.Path("joining.json")))
			anew, err := p.JoinKey("bkn_join_a")
			p.must(err)
			if anew.PEM == first.PEM || anew.PEM == "" {
				t.Error("the key is the damaged one")
			}
			p.reopen()
			again, err := p.JoinKey("bkn_join_a")
			p.must(err)
			if again.PEM != anew.PEM {
				t.Error("the new join does not last")
			}
		})
	}
}

func TestJoinKeyThatIsNotOurs(t *testing.T) {
	weak, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(weak)
	if err != nil {
		t.Fatal(err)
	}
	p := open(t)
	first, err := p.JoinKey("bkn_join_a")
	p.must(err)
	for name, text := range map[string]string{
		"no PEM": "key", "no key": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
		"ECDSA": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	} {
		p.must(change(p.Path("joining.json"), func(data []byte) []byte {
			i := strings.Index(string(data), `"token_sha256"`)
			return []byte(`{"key": ` + quote(text) + `, ` + string(data[i:]))
		}))
		key, err := p.JoinKey("bkn_join_a")
		p.must(err)
		if _, err := key.CSR(); err != nil || key.PEM == first.PEM || key.PEM == text {
			t.Errorf("%s: %v\n%s", name, err, key.PEM)
		}
	}
}

func quote(s string) string { return `"` + strings.ReplaceAll(s, "\n", `\n`) + `"` }

func TestJoinedClearsTheWay(t *testing.T) {
	p, a := open(t), newAuthority(t)
	p.must(p.Keep(a.identity("node_1")))
	p.must(p.Revoke("node_1"))
	p.reopen()
	revoked, err := p.Revoked()
	if err != nil || revoked == nil || revoked.NodeID != "node_1" || !revoked.At.Equal(noon) {
		t.Fatalf("after a restart: %+v, %v", revoked, err)
	}
	key, err := p.JoinKey("bkn_join_a")
	p.must(err)
	csr, err := key.CSR()
	p.must(err)
	id := a.identity("node_2")
	id.Key, id.Certificate = key.PEM, a.certificate("node_2", csr)
	p.must(p.Joined(id))
	p.reopen()
	p.is(id)
	if revoked, err := p.Revoked(); revoked != nil || err != nil {
		t.Errorf("the mark stayed: %+v, %v", revoked, err)
	}
	p.must(p.Settle())
	p.holds(newer)
}

// A node that left is nobody, whatever had happened to its files.
func TestForgottenNodeIsNobody(t *testing.T) {
	a := newAuthority(t)
	for name, damage := range damages {
		p := open(t)
		p.must(p.Keep(a.identity("node_1")))
		p.must(p.Keep(a.identity("node_1")))
		p.must(p.Revoke("node_1"))
		_, err := p.JoinKey("bkn_join_a")
		p.must(err)
		p.must(damage(p.Path(newer)))
		if id, err := p.Identity(); id == nil || err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		kept := []string{"journal.db", "identity-000001.json.bak"}
		for _, name := range kept {
			p.must(os.WriteFile(p.Path(name), nil, 0o600))
		}
		p.must(p.Forget())
		p.must(os.RemoveAll(p.Path(newer + ".elsewhere")))
		p.holds(kept...)
		p.reopen()
		if id, err := p.Identity(); id != nil || err != nil {
			t.Errorf("%s: it is %+v, %v", name, id, err)
		}
		if mark, err := p.Revoked(); mark != nil || err != nil {
			t.Errorf("%s: the mark stayed: %v, %v", name, mark, err)
		}
		p.must(p.Forget())
	}
}

// While the mark stands, the join must be repeatable with its token.
func TestJoinThatCannotClearTheMarkIsRepeatable(t *testing.T) {
	p, a := open(t), newAuthority(t)
	key, err := p.JoinKey("bkn_join_a")
	p.must(err)
	p.must(os.MkdirAll(filepath.Join(p.Path("revoked.json"), "not", "empty"), 0o700))
	if err := p.Joined(a.identity("node_2")); err == nil || !strings.Contains(err.Error(), "clear revoked.json") {
		t.Errorf("got %v", err)
	}
	p.reopen()
	if again, err := p.JoinKey("bkn_join_a"); err != nil || again.PEM != key.PEM {
		t.Errorf("the repeat has another key: %v", err)
	}
}

// A mark that cannot be read is one still: a node that was shut out does not
// come back through a power cut.
func TestDamagedMarkStillIsOne(t *testing.T) {
	for name, damage := range damages {
		p := open(t)
		p.must(p.Revoke("node_1"))
		p.must(damage(p.Path("revoked.json")))
		if revoked, err := p.Revoked(); revoked == nil || err != nil {
			t.Errorf("%s: %+v, %v", name, revoked, err)
		}
	}
}

func TestRenewAtIsHalfLifeWithSpread(t *testing.T) {
	a := newAuthority(t)
	base := a.identity("node_1")
	half := noon.Add(api.CertificateLife / 2)
	least, most := half.Add(-api.CertificateLife/20), half.Add(api.CertificateLife/20)
	seen := map[time.Time]bool{}
	early, late := 0, 0
	for range 200 {
		key, csr := a.newKey()
		id, err := base.WithCertificate(key, a.certificate("node_1", csr))
		if err != nil {
			t.Fatal(err)
		}
		at := id.RenewAt(api.Backdate)
		if at.Before(least) || at.After(most) {
			t.Fatalf("renewed at %v, want %v to %v", at, least, most)
		}
		seen[at] = true
		if at.Before(half.Add(-api.CertificateLife / 40)) {
			early++
		}
		if at.After(half.Add(api.CertificateLife / 40)) {
			late++
		}
	}
	if len(seen) < 80 || early < 20 || late < 20 {
		t.Errorf("200 certificates are renewed at %d times, %d of them early and %d late", len(seen), early, late)
	}
}

// A restart, or another look, does not move it.
func TestRenewAtStays(t *testing.T) {
	p, a := open(t), newAuthority(t)
	p.must(p.Keep(a.identity("node_1")))
	first, err := p.Identity()
	p.must(err)
	p.reopen()
	again, err := p.Identity()
	p.must(err)
	if !first.RenewAt(api.Backdate).Equal(again.RenewAt(api.Backdate)) {
		t.Errorf("%v became %v", first.RenewAt(api.Backdate), again.RenewAt(api.Backdate))
	}
}

func TestSigningKeysAreOfTheCAs(t *testing.T) {
	a := newAuthority(t)
	id := a.identity("node_1")
	if keys, err := id.SigningKeys(); err != nil || len(keys) != 0 {
		t.Errorf("without certificates: %v, %v", keys, err)
	}
	id.SigningCertificates = []string{id.Certificate}
	if _, err := id.SigningKeys(); err == nil {
		t.Error("a node passes for the signer")
	}
	id.CAs = append(id.CAs, "CA")
	if _, err := id.SigningKeys(); err == nil {
		t.Error("what is no CA was taken")
	}
}
