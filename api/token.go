package api

import (
	"net/http"
	"time"
)

// CreateJoinToken makes a token with which one machine may join, and the node
// it will be (PROTOCOL.md section 2). The token is shown in this answer only.
var CreateJoinToken = Endpoint[CreateJoinTokenRequest, CreatedJoinToken]{
	Method: http.MethodPost, Path: "/api/v1/join-tokens", Status: http.StatusCreated,
	Fails: []Code{NotFound, NameTaken, NodeInactive, TokenUsed}, // the last of a repeat
}

// CreateJoinTokenRequest says what the node will be.
type CreateJoinTokenRequest struct {
	Write
	Name              string `json:"name,omitempty" limit:"..40"` // of the node; else after its hostname
	Labels            Labels `json:"labels,omitempty"`
	ExpiresInS        int    `json:"expires_in_s,omitempty" limit:"0..2592000"` // 3600 unless said, at most 30 days
	Replaces          string `json:"replaces,omitempty"`                        // a node, id or name, that the join revokes
	AllowMachineReuse bool   `json:"allow_machine_reuse,omitempty"`             // though an active node has the machine's id
}

// Validate names what breaks a rule.
func (r CreateJoinTokenRequest) Validate() error {
	if r.Name != "" && !ValidName(r.Name) {
		return Errorf(Invalid, "name: the name of a node is 1 to 40 lower-case letters, digits and -, as web-1")
	}
	if r.ExpiresInS < 0 || time.Duration(r.ExpiresInS)*time.Second > MaxTokenLife {
		return Errorf(Invalid, "expires_in_s must be 0 (3600 s) to %d", int(MaxTokenLife.Seconds()))
	}
	return r.Labels.Validate()
}

// JoinToken is what may be shown of a token at any time.
type JoinToken struct {
	ID        string         `json:"id"`
	NodeID    string         `json:"node_id"`
	Node      string         `json:"node"` // its name
	State     JoinTokenState `json:"state"`
	CreatedAt time.Time      `json:"created_at"`
	ExpiresAt time.Time      `json:"expires_at"`
	UsedAt    *time.Time     `json:"used_at,omitempty"`
}

// JoinTokenState is where a token stands.
type JoinTokenState string

// The states of a token.
const (
	TokenStateUnused  JoinTokenState = "unused"
	TokenStateUsed    JoinTokenState = "used"
	TokenStateExpired JoinTokenState = "expired"
	TokenStateRevoked JoinTokenState = "revoked"
)

// CreatedJoinToken is a token and all that is needed to use it.
type CreatedJoinToken struct {
	JoinToken
	Token    string `json:"token"`
	CASHA256 string `json:"ca_sha256"` // the pin
	URL      string `json:"url"`       // of the agent listener
	Command  string `json:"command"`   // to run on the machine
}

// WithoutSecret is what may be kept of the answer: a repeat of the request
// replaces the secret under the same id.
func (t CreatedJoinToken) WithoutSecret() any {
	t.Token, t.Command = "", ""
	return t
}

// ListJoinTokens lists the tokens, the newest first.
var ListJoinTokens = Endpoint[ListJoinTokensRequest, Page[JoinToken]]{Method: http.MethodGet, Path: "/api/v1/join-tokens"}

// ListJoinTokensRequest pages.
type ListJoinTokensRequest struct{ Cursor }

// RevokeJoinToken makes an unused token useless, and its pending node goes.
var RevokeJoinToken = Endpoint[RevokeJoinTokenRequest, JoinToken]{
	Method: http.MethodDelete, Path: "/api/v1/join-tokens/{id}", Fails: []Code{NotFound, TokenUsed},
}

// RevokeJoinTokenRequest names a token by its id.
type RevokeJoinTokenRequest struct {
	Write
	ID string `path:"id" json:"-"`
}
