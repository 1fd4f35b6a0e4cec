package api

import (
	"net/http"
	"strings"
	"time"
)

// Join makes a node of a machine (PROTOCOL.md section 2). It needs no client
// certificate: the token is the credential, and is spent in the transaction
// that makes the node.
var Join = Endpoint[JoinRequest, JoinResponse]{
	Method: http.MethodPost, Path: "/agent/v1/join", Status: http.StatusCreated, Open: true,
	Fails: []Code{
		CSRInvalid, TokenInvalid, TokenExpired, TokenUsed, MachineEnrolled,
		NodeUnknown, NodeRevoked, // of the repeat of a join
		Unavailable, StorageFull,
	},
}

// JoinRequest is what a machine says of itself. The server takes the public
// key from the CSR and nothing else.
type JoinRequest struct {
	Token        string `json:"token" limit:"1.."`                     // bkn_join_…
	CSR          string `json:"csr" limit:"1..8192"`                   // PEM, PKCS #10, of an Ed25519 key made on the node
	Hostname     string `json:"hostname,omitempty" limit:"..255"`      // at most 255 bytes
	MachineID    string `json:"machine_id,omitempty" limit:"..64"`     // 64 hex digits; empty where the machine has none
	PriorNodeID  string `json:"prior_node_id,omitempty" limit:"..255"` // what this state folder was before
	OS           string `json:"os,omitempty" limit:"..255"`
	Arch         string `json:"arch,omitempty" limit:"..255"`
	AgentVersion string `json:"agent_version,omitempty" limit:"..255"`
	Tier         *int   `json:"tier,omitempty" limit:"0..3"` // the ceiling the install sets, 0 to 3; absent is not stated
	Labels       Labels `json:"labels,omitempty"`
}

// Validate names the first field that breaks its rule.
func (r JoinRequest) Validate() error {
	switch {
	case r.Token == "":
		return Errorf(Invalid, "token is required")
	case r.CSR == "" || len(r.CSR) > 8<<10:
		return Errorf(Invalid, "csr is required, PEM of at most 8 KiB")
	case r.MachineID != "" && !isHash(r.MachineID):
		return Errorf(Invalid, "machine_id must be 64 hex digits or empty")
	case r.Tier != nil && (*r.Tier < 0 || *r.Tier > int(TierManage)):
		return Errorf(Invalid, "tier must be 0 to 3 or absent")
	}
	for name, value := range map[string]string{
		"hostname": r.Hostname, "prior_node_id": r.PriorNodeID, "os": r.OS, "arch": r.Arch, "agent_version": r.AgentVersion,
	} {
		if len(value) > 255 {
			return Errorf(Invalid, "%s is longer than 255 bytes", name)
		}
	}
	return r.Labels.Validate()
}

// isHash reports whether s is 64 lower-case hex digits.
func isHash(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// JoinResponse is a node's identity. The agent takes the certificate only for
// its own key and from the pinned CA.
type JoinResponse struct {
	NodeID      string     `json:"node_id"`
	Name        string     `json:"name"`
	Status      NodeStatus `json:"status"`
	Certificate string     `json:"certificate"` // PEM
	Trust       Envelope   `json:"trust"`       // signed for node_id
	ServerTime  time.Time  `json:"server_time"`
	NextS       int        `json:"next_s"`
}

// Renew gives a node a certificate for a new key (PROTOCOL.md section 2). It
// takes an expired certificate up to RenewGrace after its end, answers every
// protocol integer, and is the only call that does both.
var Renew = Endpoint[RenewRequest, RenewResponse]{
	Method: http.MethodPost, Path: "/agent/v1/renew", Frozen: true, Fails: []Code{CSRInvalid},
}

// RenewRequest carries the CSR of the new key, PEM.
type RenewRequest struct {
	CSR string `json:"csr" limit:"1..8192"`
}

// Validate wants a CSR.
func (r RenewRequest) Validate() error {
	if r.CSR == "" || len(r.CSR) > 8<<10 {
		return Errorf(Invalid, "csr is required, PEM of at most 8 KiB")
	}
	return nil
}

// RenewResponse holds the new certificate.
type RenewResponse struct {
	Certificate string    `json:"certificate"` // PEM
	ServerTime  time.Time `json:"server_time"`
}
