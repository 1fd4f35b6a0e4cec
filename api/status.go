package api

import (
	"net/http"
	"time"
)

// GetStatus is the first thing to ask: what the server is and how the fleet is.
var GetStatus = Endpoint[StatusRequest, Status]{Method: http.MethodGet, Path: "/api/v1/status"}

// StatusRequest is empty.
type StatusRequest struct{}

// Status counts nodes by presence and deployments by state.
type Status struct {
	Version     string                  `json:"version"`
	ProtocolMin int                     `json:"protocol_min"`
	ProtocolMax int                     `json:"protocol_max"`
	StartedAt   time.Time               `json:"started_at"`
	ServerTime  time.Time               `json:"server_time"`
	AgentURL    string                  `json:"agent_url"`
	CASHA256    string                  `json:"ca_sha256"`
	Nodes       map[Presence]int        `json:"nodes"` // active ones
	Deployments map[DeploymentState]int `json:"deployments"`
	Commands    map[State]int           `json:"commands"` // that have not ended
}

// Healthz answers while the process can. It needs no credentials.
var Healthz = Endpoint[HealthRequest, HealthResponse]{Method: http.MethodGet, Path: "/healthz", Open: true}

// Readyz answers while the process can also store. It needs no credentials.
var Readyz = Endpoint[HealthRequest, HealthResponse]{
	Method: http.MethodGet, Path: "/readyz", Open: true, Fails: []Code{Unavailable, StorageFull},
}

// HealthRequest is empty.
type HealthRequest struct{}

// HealthResponse says ok; what is not ok is an Error.
type HealthResponse struct {
	Status string `json:"status"`
}
