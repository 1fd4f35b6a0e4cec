// Package seal signs and verifies what must hold end to end, whoever opens the
// TLS on the way: envelopes, the trust document, certificates and the pin
// (PROTOCOL.md sections 2 and 3). Both sides and third parties need it.
package seal

import (
	"crypto/ed25519"
	"encoding/binary"
	"math"

	"github.com/beckon-fleet/beckon/api"
)

// A Tag keeps a signature for one type of document from passing for another.
type Tag string

// The tags.
const (
	TagCommand Tag = "beckon-command:v1"
	TagTrust   Tag = "beckon-trust:v1"
)

// Signer signs for the control plane.
type Signer struct {
	ID      string // KeyID of the public half
	Private ed25519.PrivateKey
}

// Sign makes an envelope for one node: it means nothing to another. node is
// empty for a trust document that is asked for without an identity.
func (s Signer) Sign(tag Tag, node string, seq int64, data []byte) api.Envelope {
	return api.Envelope{
		Data:      string(data),
		Seq:       seq,
		Signature: ed25519.Sign(s.Private, signingInput(tag, node, seq, data)),
		Key:       s.ID,
	}
}

// Keys are the signing keys that a node trusts, by their ids.
type Keys map[string]ed25519.PublicKey

// Verify comes before anything else is done with e. The error is
// api.SignatureBad.
func Verify(e api.Envelope, tag Tag, node string, keys Keys) error {
	key, ok := keys[e.Key]
	if !ok {
		return api.Errorf(api.SignatureBad, "no signing key has the id %q", e.Key)
	}
	if len(node) > math.MaxUint16 || e.Seq <= 0 || !ed25519.Verify(key, signingInput(tag, node, e.Seq, []byte(e.Data)), e.Signature) {
		return api.Errorf(api.SignatureBad, "the signature of %s %d does not verify", tag, e.Seq)
	}
	return nil
}

// signingInput is tag ‖ len16(node) ‖ node ‖ seq(8, big endian) ‖ data. The
// length keeps a node's name from running into what follows it.
func signingInput(tag Tag, node string, seq int64, data []byte) []byte {
	in := []byte(tag)
	in = binary.BigEndian.AppendUint16(in, uint16(len(node)))
	in = append(in, node...)
	in = binary.BigEndian.AppendUint64(in, uint64(seq))
	return append(in, data...)
}
