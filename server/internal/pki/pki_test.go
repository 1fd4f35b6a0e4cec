package pki_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"encoding/pem"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api/seal"
	"github.com/beckon-fleet/beckon/server/internal/pki"
)

// start is when the clocks of these tests begin.
func start() time.Time { return time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC) }

func open(t *testing.T, dir string, names ...string) *pki.Authority {
	t.Helper()
	a, err := pki.Open(dir, start, names)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// contents are a folder's files; a folder in it counts as "folder".
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, entry := range entries {
		all[entry.Name()] = "folder"
		if !entry.IsDir() {
			all[entry.Name()] = read(t, filepath.Join(dir, entry.Name()))
		}
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFirstStartMakesEverythingOnce(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir)
	for name, mode := range map[string]fs.FileMode{"ca.pem": 0o600, "signing.pem": 0o600, "server.pem": 0o600, "ca.crt": 0o644} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	ca := a.CA()
	key, ok := ca.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() || !ca.IsCA || !ca.NotAfter.Equal(start().AddDate(20, 0, 0)) {
		t.Errorf("the CA is %T, until %v", ca.PublicKey, ca.NotAfter)
	}
	public, err := seal.ParseCertificate(read(t, filepath.Join(dir, "ca.crt")))
	if err != nil || seal.PinOf(public) != a.Pin() {
		t.Errorf("ca.crt is not the CA: %v", err)
	}
	if _, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.pem")); err != nil {
		t.Errorf("other programs cannot read server.pem as key and certificate: %v", err)
	}
	made := contents(t, dir)
	if len(made) != 4 {
		t.Errorf("made %v", slices.Sorted(maps.Keys(made)))
	}
	if err := os.Chmod(filepath.Join(dir, "ca.pem"), 0o644); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir)
	if !maps.Equal(made, contents(t, dir)) || again.Pin() != a.Pin() || again.Signer().ID != a.Signer().ID {
		t.Error("the second start changed something")
	}
	if info, err := os.Stat(filepath.Join(dir, "ca.pem")); err != nil || info.Mode() != 0o600 {
		t.Errorf("others may still read the CA's key: %v, %v", info.Mode(), err)
	}
}

// A first start may be cut off between any two of its steps.
func TestFirstStartThatWasCutOff(t *testing.T) {
	for name, left := range map[string]map[string]string{ // file now: file of the whole
		"at the CA":           {"ca.pem.new": "ca.pem"},
		"at the signing key":  {"ca.pem.new": "ca.pem", "signing.pem": "signing.pem"},
		"at the CA's name":    {"ca.pem.new": "ca.pem", "signing.pem": "signing.pem", "ca.pem": "ca.pem"},
		"at ca.crt":           {"signing.pem": "signing.pem", "ca.pem": "ca.pem"},
		"at the server's key": {"signing.pem": "signing.pem", "ca.pem": "ca.pem", "ca.crt": "ca.crt"},
	} {
		t.Run(name, func(t *testing.T) {
			whole, dir := t.TempDir(), t.TempDir()
			a := open(t, whole)
			for now, before := range left {
				write(t, filepath.Join(dir, now), read(t, filepath.Join(whole, before)))
			}
			_, signed := left["signing.pem"]
			if b := open(t, dir); signed && (b.Pin() != a.Pin() || b.Signer().ID != a.Signer().ID) {
				t.Error("keys that were there were made anew")
			}
			if got := contents(t, dir); len(got) != 4 {
				t.Errorf("there is %v", slices.Sorted(maps.Keys(got)))
			}
		})
	}
}

// damages are what a power cut, a bad disk or a wrong hand leaves of a file.
// other is the same file of another cluster.
func damages() map[string]func(t *testing.T, path, other string) {
	change := func(to func(text, other string) string) func(t *testing.T, path, other string) {
		return func(t *testing.T, path, other string) { write(t, path, to(read(t, path), read(t, other))) }
	}
	blocks := func(text string) (key, certificate string) {
		first, rest := pem.Decode([]byte(text))
		return string(pem.EncodeToMemory(first)), string(rest)
	}
	return map[string]func(t *testing.T, path, other string){
		"empty": change(func(string, string) string { return "" }),
		"half":  change(func(text, _ string) string { return text[:len(text)/2] }),
		"cut":   change(func(text, _ string) string { return text[:len(text)-30] }),
		"NULs":  change(func(text, _ string) string { return string(make([]byte, len(text))) }),
		"NULs after half": change(func(text, _ string) string {
			return text[:len(text)/2] + string(make([]byte, len(text)/2))
		}),
		"NULs behind": change(func(text, _ string) string { return text + "\x00\x00" }),
		"folder": func(t *testing.T, path, _ string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		},
		"another's key": change(func(text, other string) string {
			_, certificate := blocks(text)
			key, _ := blocks(other)
			return key + certificate
		}),
		"another's certificate": change(func(text, other string) string {
			key, _ := blocks(text)
			_, certificate := blocks(other)
			return key + certificate
		}),
		"key alone":         change(func(text, _ string) string { key, _ := blocks(text); return key }),
		"certificate alone": change(func(text, _ string) string { _, certificate := blocks(text); return certificate }),
		"two keys":          change(func(text, _ string) string { key, _ := blocks(text); return key + text }),
		"bit flipped":       change(func(text, _ string) string { return flip(text) }),
	}
}

// flip changes the last byte of the certificate, which is in its signature.
func flip(text string) string {
	key, rest := pem.Decode([]byte(text))
	certificate, _ := pem.Decode(rest)
	certificate.Bytes[len(certificate.Bytes)-1] ^= 1
	return string(pem.EncodeToMemory(key)) + string(pem.EncodeToMemory(certificate))
}

func TestKeysAreNeverMadeAnew(t *testing.T) {
	kinds := damages()
	kinds["missing"] = func(t *testing.T, path, _ string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"ca.pem", "signing.pem"} {
		for name, damage := range kinds {
			t.Run(file+" "+name, func(t *testing.T) {
				dir, other := t.TempDir(), t.TempDir()
				open(t, dir)
				open(t, other)
				path := filepath.Join(dir, file)
				damage(t, path, filepath.Join(other, file))
				refused(t, dir, path)
			})
		}
	}
}

// refused opens dir and wants a sentence about path, and nothing changed.
func refused(t *testing.T, dir, path string) {
	t.Helper()
	before := contents(t, dir)
	_, err := pki.Open(dir, start, nil)
	if err == nil || !strings.Contains(err.Error(), path+" cannot be used") || !strings.Contains(err.Error(), "restore it from a backup") {
		t.Errorf("want a sentence about %s, got %v", path, err)
	}
	if !maps.Equal(before, contents(t, dir)) {
		t.Error("the folder was changed")
	}
}

func TestKeysOfTwoClustersAreRefused(t *testing.T) {
	for changed, blamed := range map[string]string{"ca.pem": "signing.pem", "signing.pem": "signing.pem"} {
		dir, other := t.TempDir(), t.TempDir()
		open(t, dir)
		open(t, other)
		write(t, filepath.Join(dir, changed), read(t, filepath.Join(other, changed)))
		refused(t, dir, filepath.Join(dir, blamed))
	}
	dir := t.TempDir()
	open(t, dir)
	write(t, filepath.Join(dir, "ca.pem"), read(t, filepath.Join(dir, "server.pem")))
	refused(t, dir, filepath.Join(dir, "ca.pem"))

	dir = t.TempDir()
	open(t, dir)
	write(t, filepath.Join(dir, "signing.pem"), read(t, filepath.Join(dir, "server.pem")))
	refused(t, dir, filepath.Join(dir, "signing.pem"))
}

func TestLostKeysAreMissed(t *testing.T) {
	for _, kept := range []string{"ca.crt", "server.pem"} {
		dir, whole := t.TempDir(), t.TempDir()
		open(t, whole)
		write(t, filepath.Join(dir, kept), read(t, filepath.Join(whole, kept)))
		refused(t, dir, filepath.Join(dir, "ca.pem"))
	}
}

func TestPublicFilesAreMadeAnew(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir)
	want := contents(t, dir)["ca.crt"]
	for _, text := range []string{"", want + want, want[:100]} {
		write(t, filepath.Join(dir, "ca.crt"), text)
		if open(t, dir).Pin() != a.Pin() || contents(t, dir)["ca.crt"] != want {
			t.Errorf("%d bytes of ca.crt stayed", len(text))
		}
	}
}

func TestDamagedServerCertificateIsReissued(t *testing.T) {
	kinds := damages()
	kinds["another's"] = func(t *testing.T, path, other string) { write(t, path, read(t, other)) }
	kinds["signer's"] = func(t *testing.T, path, _ string) {
		write(t, path, read(t, filepath.Join(filepath.Dir(path), "signing.pem")))
	}
	for name, damage := range kinds {
		t.Run(name, func(t *testing.T) {
			dir, other := t.TempDir(), t.TempDir()
			a := open(t, dir)
			open(t, other)
			path := filepath.Join(dir, "server.pem")
			old, err := a.ServerCertificate()
			if err != nil {
				t.Fatal(err)
			}
			damage(t, path, filepath.Join(other, "server.pem"))
			damaged := contents(t, dir)["server.pem"]
			b := open(t, dir)
			now, err := b.ServerCertificate()
			if err != nil || b.Pin() != a.Pin() || bytes.Equal(now.Certificate[0], old.Certificate[0]) {
				t.Errorf("not re-issued under the same CA: %v", err)
			}
			after := contents(t, dir)
			if after["server.pem.corrupt-1796126400"] != damaged || len(after) != 5 {
				t.Errorf("the damaged one is not kept: %v", slices.Sorted(maps.Keys(after)))
			}
		})
	}
	dir := t.TempDir()
	open(t, dir)
	if err := os.Remove(filepath.Join(dir, "server.pem")); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	if after := contents(t, dir); len(after) != 4 {
		t.Errorf("a missing one: %v", slices.Sorted(maps.Keys(after)))
	}
}
