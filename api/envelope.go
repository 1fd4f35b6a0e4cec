package api

// Envelope carries whatever changes a node (PROTOCOL.md section 3). Data is
// the text of a JSON document, as a string: a JSON member has no "bytes exactly
// as sent", every hop may rewrite it. `jq -j .data` yields what is signed;
// package seal signs and verifies.
type Envelope struct {
	Data      string `json:"data"`      // the text of a JSON document
	Seq       int64  `json:"seq"`       // rises for each node and type; above 0
	Signature []byte `json:"signature"` // Ed25519, 64 bytes, base64 in JSON
	Key       string `json:"key"`       // id of the signing key
}
