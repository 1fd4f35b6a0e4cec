package probe_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/beckon-fleet/beckon/agent/internal/probe"
	"github.com/beckon-fleet/beckon/api"
)

const (
	etc  = "etc/machine-id"
	dbus = "var/lib/dbus/machine-id"
	one  = "0123456789abcdef0123456789abcdef"
	two  = "fedcba9876543210fedcba9876543210"
)

func of(id string) string {
	sum := sha256.Sum256([]byte("beckon-machine:v1:" + id))
	return hex.EncodeToString(sum[:])
}

// Field case: golden images and broken machines share ids. What tells nothing
// is no id, and never one that many have.
func TestMachineID(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"as systemd writes it":  {map[string]string{etc: one + "\n"}, of(one)},
		"without a line break":  {map[string]string{etc: one}, of(one)},
		"upper case":            {map[string]string{etc: strings.ToUpper(one)}, of(one)},
		"both":                  {map[string]string{etc: one, dbus: two}, of(one)},
		"of dbus":               {map[string]string{dbus: two}, of(two)},
		"none":                  {nil, ""},
		"empty":                 {map[string]string{etc: "", dbus: two}, of(two)},
		"only a line break":     {map[string]string{etc: "\n"}, ""},
		"uninitialized":         {map[string]string{etc: "uninitialized\n", dbus: two}, of(two)},
		"zeros":                 {map[string]string{etc: strings.Repeat("0", 32)}, ""},
		"one digit":             {map[string]string{etc: strings.Repeat("f", 32)}, ""},
		"half":                  {map[string]string{etc: one[:16]}, ""},
		"too long":              {map[string]string{etc: one + one}, ""},
		"odd":                   {map[string]string{etc: one[:31]}, ""},
		"as a UUID":             {map[string]string{etc: "01234567-89ab-cdef-0123-456789abcdef"}, ""},
		"NULs":                  {map[string]string{etc: strings.Repeat("\x00", 32)}, ""},
		"two lines":             {map[string]string{etc: one + "\n" + two}, ""},
		"a folder in its place": {map[string]string{etc + "/x": "", dbus: two}, of(two)},
	} {
		root := t.TempDir()
		for path, text := range c.files {
			path = filepath.Join(root, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := probe.MachineID(root)
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if err := (api.JoinRequest{Token: "t", CSR: "c", MachineID: got}).Validate(); err != nil || strings.Contains(got, one) {
			t.Errorf("%s: %q: %v", name, got, err)
		}
	}
}

func TestCapacity(t *testing.T) {
	got, err := probe.Capacity(t.TempDir())
	if err != nil || got.Validate() != nil || got.CPUCores != runtime.NumCPU() || got.MemBytes < 64<<20 || got.DiskBytes < 64<<20 {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := probe.Capacity(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("of a folder that is not there: %v", err)
	}
}

// What the agent says of itself fits, all of it, and what is not known is
// absent.
func TestHelloAndSelfFit(t *testing.T) {
	req := api.HeartbeatRequest{CPUCores: 1, MemBytes: 1, DiskBytes: 1, Hello: probe.Hello(), Self: probe.Self()}
	text, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	var got api.HeartbeatRequest
	if err := json.Unmarshal(text, &got); err != nil || len(got.Dropped) != 0 || got.Validate() != nil {
		t.Fatalf("%s: dropped are %v: %v", text, got.Dropped, err)
	}
	again, err := json.Marshal(got)
	if err != nil || string(again) != string(text) {
		t.Errorf("%s became %s: %v", text, again, err)
	}
	h := got.Hello
	if h.OS != runtime.GOOS || h.Arch != runtime.GOARCH || h.Hostname != probe.Hostname() || h.Release == nil || h.Tier != nil {
		t.Errorf("got %+v", h)
	}
	if got.Self.Goroutines < 1 {
		t.Errorf("got %+v", got.Self)
	}
	if runtime.GOOS == "linux" && (h.Kernel == "" || h.BootID == "" || got.Self.RSSBytes < 1<<20) {
		t.Errorf("on Linux all is known: %s", text)
	}
}

func TestInstallation(t *testing.T) {
	t.Setenv("INVOCATION_ID", "0123")
	if kind := probe.Hello().Release.Kind; kind != "systemd" {
		t.Errorf("under systemd it is %s", kind)
	}
	t.Setenv("INVOCATION_ID", "")
	if kind := probe.Hello().Release.Kind; kind != "container" && kind != "manual" {
		t.Errorf("without systemd it is %s", kind)
	}
}
