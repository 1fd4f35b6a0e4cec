package api

import (
	"net/http"
	"time"
)

// NodeStatus is where a node stands with the cluster.
type NodeStatus string

// The statuses of a node (PROTOCOL.md section 13).
const (
	StatusPending NodeStatus = "pending" // its token is not used yet
	StatusActive  NodeStatus = "active"
	StatusLeft    NodeStatus = "left" // by itself
	StatusRevoked NodeStatus = "revoked"
)

// Presence says whether a node is there now. Unknown is an answer: the server
// has just started, or the node has never called.
type Presence string

// The presences of a node.
const (
	Online          Presence = "online"
	Offline         Presence = "offline"
	PresenceUnknown Presence = "unknown"
)

// Node is a machine with an agent, as far as it is known.
type Node struct {
	ID       string     `json:"id"`
	Name     string     `json:"name"`
	Status   NodeStatus `json:"status"`
	Presence Presence   `json:"presence"`
	Labels   Labels     `json:"labels"`

	LastSeenAt           *time.Time `json:"last_seen_at,omitempty"` // by the server's clock
	CreatedAt            time.Time  `json:"created_at"`
	JoinedAt             *time.Time `json:"joined_at,omitempty"`
	RevokedAt            *time.Time `json:"revoked_at,omitempty"` // or left
	CertificateExpiresAt *time.Time `json:"certificate_expires_at,omitempty"`

	Hostname     string `json:"hostname,omitempty"`
	OS           string `json:"os,omitempty"`
	Arch         string `json:"arch,omitempty"`
	AgentVersion string `json:"agent_version,omitempty"`
	Tier         *int   `json:"tier,omitempty"` // absent is not stated
	CPUCores     int    `json:"cpu_cores,omitempty"`
	MemBytes     int64  `json:"mem_bytes,omitempty"`
	DiskBytes    int64  `json:"disk_bytes,omitempty"`

	// What a running agent says of itself; unknown since a start of the server
	// until it is said again.
	Protocol int    `json:"protocol,omitempty"`
	Hello    *Hello `json:"hello,omitempty"`
	Self     *Self  `json:"self,omitempty"`
	Wake     *Wake  `json:"wake,omitempty"`
}

// ListNodes lists the nodes by name.
var ListNodes = Endpoint[ListNodesRequest, Page[Node]]{Method: http.MethodGet, Path: "/api/v1/nodes"}

// ListNodesRequest may ask for one status.
type ListNodesRequest struct {
	Cursor
	Status NodeStatus `query:"status" json:"-"`
}

// Validate refuses a status that there is not: an empty list would say that
// no node has it.
func (r ListNodesRequest) Validate() error {
	return oneOf("status", r.Status, StatusPending, StatusActive, StatusLeft, StatusRevoked)
}

// GetNode shows one node.
var GetNode = Endpoint[NodeRequest, Node]{Method: http.MethodGet, Path: "/api/v1/nodes/{node}", Fails: []Code{NotFound}}

// NodeRequest names a node by id or name.
type NodeRequest struct {
	Node string `path:"node" json:"-"` // id or name
}

// RevokeNode shuts a node out at once and for good (PROTOCOL.md section 2).
// Commands it has not acked are canceled, acked ones lost.
var RevokeNode = Endpoint[RevokeNodeRequest, Node]{Method: http.MethodPost, Path: "/api/v1/nodes/{node}/revoke", Fails: []Code{NotFound}}

// RevokeNodeRequest names a node by id or name.
type RevokeNodeRequest struct {
	Write
	Node string `path:"node" json:"-"` // id or name
}
