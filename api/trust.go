package api

import (
	"net/http"
	"time"
)

// Trust fetches the cluster's CAs and signing keys (PROTOCOL.md section 2). It
// needs no credentials: the envelope verifies with the pin alone.
var Trust = Endpoint[TrustRequest, Envelope]{Method: http.MethodGet, Path: "/agent/v1/trust", Open: true, Frozen: true}

// TrustRequest may carry a nonce of at most 64 letters, digits, "-" or "_"; the
// answer holds it, which proves that the answer is new.
type TrustRequest struct {
	Nonce string `query:"nonce" json:"-" limit:"..64"`
}

// Validate refuses a nonce that is too long or not plain.
func (r TrustRequest) Validate() error {
	if r.Nonce != "" && !nameOf(r.Nonce, 64) {
		return Errorf(Invalid, "nonce: at most 64 letters, digits, - or _")
	}
	return nil
}

// TrustDocument is the data of the trust envelope.
type TrustDocument struct {
	Generation          int64     `json:"generation"`           // rises with each CA; the trust cursor
	CAs                 []string  `json:"cas"`                  // PEM, the one in use first
	SigningCertificates []string  `json:"signing_certificates"` // PEM, under one of the CAs
	Nonce               string    `json:"nonce,omitempty"`
	ServerTime          time.Time `json:"server_time"`
}
