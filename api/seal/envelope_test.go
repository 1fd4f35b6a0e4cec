package seal_test

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
)

func newSigner(t *testing.T) (seal.Signer, seal.Keys) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := seal.Signer{ID: seal.KeyID(public), Private: private}
	return s, seal.Keys{s.ID: public}
}

// A hop that reads JSON and writes it again changes numbers, spaces, order and
// escapes of what it understands. It does not understand data.
func TestEnvelopeSurvivesRewriting(t *testing.T) {
	signer, keys := newSigner(t)
	document := "{ \"n\": 1.0, \"big\": 12345678901234567890, \"a\": 1, \"a\": 2,\r\n\t\"text\": \"a<b>&\\u0041 \u2028 \U0001F600 \\/\" }"
	sent := signer.Sign(seal.TagCommand, "node_1", 1796126400000, []byte(document))
	hop, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		var rewritten any
		if err := json.Unmarshal(hop, &rewritten); err != nil {
			t.Fatal(err)
		}
		if hop, err = json.MarshalIndent(rewritten, "", "\t"); err != nil {
			t.Fatal(err)
		}
	}
	var got api.Envelope
	if err := json.Unmarshal(hop, &got); err != nil {
		t.Fatal(err)
	}
	if err := seal.Verify(got, seal.TagCommand, "node_1", keys); err != nil || got.Data != document {
		t.Fatalf("after a hop: %v, %s", err, got.Data)
	}
}

func TestForgedEnvelopesAreRefused(t *testing.T) {
	signer, keys := newSigner(t)
	other, _ := newSigner(t)
	sent := signer.Sign(seal.TagCommand, "node_1", 7, []byte(`{"id": "cmd_1"}`))
	for name, c := range map[string]struct {
		tag    seal.Tag
		node   string
		change func(e *api.Envelope)
		good   bool
	}{
		"as sent":        {good: true},
		"other node":     {node: "node_2"},
		"node cut short": {node: "node_"},
		"no node":        {node: " "},
		"endless node":   {node: strings.Repeat("n", 1<<16+6)},
		"other tag":      {tag: seal.TagTrust},
		"next seq":       {change: func(e *api.Envelope) { e.Seq++ }},
		"seq 0":          {change: func(e *api.Envelope) { *e = signer.Sign(seal.TagCommand, "node_1", 0, []byte(e.Data)) }},
		"seq below 0":    {change: func(e *api.Envelope) { *e = signer.Sign(seal.TagCommand, "node_1", -7, []byte(e.Data)) }},
		"other data":     {change: func(e *api.Envelope) { e.Data = "[" + e.Data[1:] }},
		"data with more": {change: func(e *api.Envelope) { e.Data += " " }},
		"no data":        {change: func(e *api.Envelope) { e.Data = "" }},
		"unknown key":    {change: func(e *api.Envelope) { e.Key = other.ID }},
		"other's signer": {change: func(e *api.Envelope) { *e = other.Sign(seal.TagCommand, "node_1", 7, []byte(e.Data)) }},
		"other's as ours": {change: func(e *api.Envelope) {
			e.Signature = other.Sign(seal.TagCommand, "node_1", 7, []byte(e.Data)).Signature
		}},
		"no key":           {change: func(e *api.Envelope) { e.Key = "" }},
		"no signature":     {change: func(e *api.Envelope) { e.Signature = nil }},
		"half a signature": {change: func(e *api.Envelope) { e.Signature = e.Signature[:32] }},
		"long signature":   {change: func(e *api.Envelope) { e.Signature = append(e.Signature[:64:64], 0) }},
	} {
		e, tag, node := sent, seal.TagCommand, "node_1"
		if c.change != nil {
			c.change(&e)
		}
		if c.tag != "" {
			tag = c.tag
		}
		if c.node != "" {
			node = strings.TrimSpace(c.node)
		}
		err := seal.Verify(e, tag, node, keys)
		if c.good != (err == nil) || !c.good && !errors.Is(err, api.SignatureBad) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := seal.Verify(sent, seal.TagCommand, "node_1", nil); !errors.Is(err, api.SignatureBad) {
		t.Errorf("without any key: %v", err)
	}
}

// Tag, node, seq and data cannot lend each other bytes.
func TestSigningInputHasOneReading(t *testing.T) {
	signer, keys := newSigner(t)
	e := signer.Sign(seal.TagCommand, "node_1", 7, []byte("2{}"))
	e.Data = "{}"
	if err := seal.Verify(e, seal.TagCommand, "node_12", keys); !errors.Is(err, api.SignatureBad) {
		t.Errorf("a byte of the data passed for the node's: %v", err)
	}
}

// What a third party must reproduce: the input, byte by byte, and the id of
// the key (RFC 8032, test 1).
func TestSigningInputIsAsWritten(t *testing.T) {
	seed, err := hex.DecodeString("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
	if err != nil {
		t.Fatal(err)
	}
	private := ed25519.NewKeyFromSeed(seed)
	public := private.Public().(ed25519.PublicKey)
	if got, want := hex.EncodeToString(public), "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"; got != want {
		t.Fatalf("public key %s", got)
	}
	input := "beckon-command:v1" + "\x00\x06" + "node_1" + "\x00\x00\x01\xa2\x31\x4a\xc1\x00" + `{"id": "cmd_1"}`
	e := seal.Signer{ID: seal.KeyID(public), Private: private}.Sign(seal.TagCommand, "node_1", 0x1a2314ac100, []byte(`{"id": "cmd_1"}`))
	if !ed25519.Verify(public, []byte(input), e.Signature) {
		t.Error("the signature is over something else than tag, len16, node, seq and data")
	}
	if len(e.Key) != 16 || e.Key != seal.KeyID(public) {
		t.Errorf("the key's id is %q", e.Key)
	}
	trust := seal.Signer{Private: private}.Sign(seal.TagTrust, "", 1, []byte("{}"))
	if !ed25519.Verify(public, []byte("beckon-trust:v1\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01{}"), trust.Signature) {
		t.Error("a trust document signs an empty node")
	}
}
