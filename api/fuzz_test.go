package api_test

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
)

var hexPin = regexp.MustCompile(`^[0-9a-f]{64}$`)

func FuzzDecodePin(f *testing.F) {
	pin := strings.Repeat("0aF9", 16)
	for _, seed := range []string{
		"", pin, "sha256:" + pin, "SHA256 Fingerprint=" + pin + "\n", "0A:F9:" + pin, pin[:63], pin[:40], "sha1:" + pin, "sha256:sha256:" + pin,
		"\u212a" + pin, "ſha256:" + pin, " : \t" + pin, "\x00" + pin,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pin, err := seal.ParsePin(text)
		if err != nil {
			if pin != "" || !errors.Is(err, api.Invalid) {
				t.Errorf("%q: %q, %v", text, pin, err)
			}
			return
		}
		again, err := seal.ParsePin(string(pin))
		if !hexPin.MatchString(string(pin)) || err != nil || again != pin {
			t.Errorf("%q is %q, and then %q, %v", text, pin, again, err)
		}
	})
}

func FuzzDecodeInstance(f *testing.F) {
	for _, seed := range []string{"", "e.1.r", "e.0.r", "e.+1.r", "e.01.r", "e.1.r.x", "é.1.r", "e.9223372036854775808.r", "e.1.\r\n", strings.Repeat("e", 65) + ".1.r"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		i, err := api.ParseInstance(text)
		if err != nil {
			if i != (api.Instance{}) || !errors.Is(err, api.Invalid) {
				t.Errorf("%q: %+v, %v", text, i, err)
			}
			return
		}
		again, err := api.ParseInstance(i.String())
		if err != nil || again != i || !i.Inherits(again) || i.Starts < 1 || len(i.String()) > 160 {
			t.Errorf("%q is %s, and then %s, %v", text, i, again, err)
		}
	})
}

func FuzzDecodeHeartbeat(f *testing.F) {
	for _, seed := range []string{
		`{"cpu_cores": 8, "mem_bytes": 33554432000, "disk_bytes": 512000000000}`,
		`{"cpu_cores": 8, "mem_bytes": 1, "disk_bytes": 1, "n": 812, "hello": {"boot_id": "b", "capabilities": ["config-digest"], "tier": 2, "release": {"kind": "systemd"}}}`,
		`{"cpu_cores": 8, "mem_bytes": 1, "disk_bytes": 1, "self": {"rss_bytes": 11534336, "goroutines": "x"}, "wake": {"rung": "stream"}, "applied": {"commands": 41}}`,
		`{"cpu_cores": 8, "CPU_CORES": "x", "mem_bytes": 1e999, "disk_bytes": null, "hello": {"tier": 1e999, "runtimes": {"": ""}}}`,
		`{"hello": {"hostname": "` + strings.Repeat("é", 200) + `"}}`,
		`null`, `[]`, `{`, strings.Repeat(`{"hello":`, 100) + strings.Repeat("}", 100),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var req, again api.HeartbeatRequest
		if json.Unmarshal(data, &req) != nil || req.Validate() != nil {
			return
		}
		if h := req.Hello; h != nil {
			if len(h.Hostname) > 255 || !utf8.ValidString(h.Hostname) || len(h.Capabilities) > 32 || len(h.Runtimes) > 8 {
				t.Errorf("the limits of hello: %+v", h)
			}
		}
		text, err := json.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &again); err != nil || len(again.Dropped) != 0 {
			t.Fatalf("%s cannot be read again: %v, %v", text, again.Dropped, err)
		}
		if twice, err := json.Marshal(again); err != nil || string(twice) != string(text) {
			t.Errorf("%s became %s, %v", text, twice, err)
		}
	})
}

func FuzzDecodeCommandItem(f *testing.F) {
	private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	public := private.Public().(ed25519.PublicKey)
	signer := seal.Signer{ID: seal.KeyID(public), Private: private}
	keys := seal.Keys{signer.ID: public}
	good := signer.Sign(seal.TagCommand, "node_1", 7, []byte(`{"id": "cmd_1", "kind": "stop", "expires_at": "2026-11-30T12:00:00Z", "payload": {"app_id": "a", "app": "web"}}`))
	text, err := json.Marshal(api.CommandItem{Envelope: good, State: api.Delivered})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		string(text), strings.Replace(string(text), `"seq":7`, `"seq":8`, 1), strings.Replace(string(text), "stop", "deploy", 1),
		`{"data": "{\"id\": \"cmd_1\", \"kind\": \"deploy\", \"payload\": {\"env\": {\"A\": 1}}}", "seq": 1}`,
		`{"data": "{}", "seq": -1, "signature": "AQI=", "key": ""}`, `{"data": {}, "signature": 7}`, `null`, `7`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var item api.CommandItem
		if json.Unmarshal(data, &item) != nil {
			return
		}
		// Whatever hops have made of it: what verifies is what was signed.
		if seal.Verify(item.Envelope, seal.TagCommand, "node_1", keys) == nil && (item.Data != good.Data || item.Seq != good.Seq) {
			t.Errorf("nobody signed %q", item.Data)
		}
		var c api.Command
		if json.Unmarshal([]byte(item.Data), &c) != nil {
			return
		}
		if k, err := api.KindNamed(c.Kind); err == nil {
			if err := k.Check(c.Payload); err != nil && !errors.Is(err, api.Invalid) {
				t.Errorf("%s: %v", c.Payload, err)
			}
		}
	})
}
