package seal

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"regexp"
	"strings"

	"github.com/beckon-fleet/beckon/api"
)

// Pin is the SHA-256 of a CA certificate's DER, as `openssl x509 -fingerprint
// -sha256` prints it: 64 lower-case hex digits.
type Pin string

// PinOf is the pin of a certificate.
func PinOf(c *x509.Certificate) Pin {
	sum := sha256.Sum256(c.Raw)
	return Pin(hex.EncodeToString(sum[:]))
}

var pinLabel = regexp.MustCompile(`^(?i:sha-?256(?: fingerprint)? *[=:])`)

// ParsePin reads a pin in every accepted spelling: case, colons, spaces and
// line breaks do not matter, nor a leading "sha256:" or openssl's own
// "SHA256 Fingerprint=". The error is api.Invalid and says what was expected.
func ParsePin(s string) (Pin, error) {
	text := pinLabel.ReplaceAllString(strings.TrimSpace(s), "")
	text = strings.ToLower(strings.NewReplacer(":", "", " ", "", "\t", "", "\r", "", "\n", "").Replace(text))
	if text == "" {
		return "", api.Errorf(api.Invalid, "the pin is empty; it is the 64 hex digits of the CA certificate's SHA-256")
	}
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != sha256.Size {
		return "", api.Errorf(api.Invalid, "the pin has %d characters that count and is not 64 hex digits, the SHA-256 of the CA certificate", len(text))
	}
	return Pin(text), nil
}
