package api

import (
	"net/http"
	"time"
)

// PostReport says what really runs on a node, and what it noticed (PROTOCOL.md
// section 8). It is idempotent. A report that names another node's deployment
// is refused whole with object_foreign.
var PostReport = Endpoint[Report, ReportResponse]{Method: http.MethodPost, Path: "/agent/v1/report", Fails: []Code{ObjectForeign}}

// Report is at most 500 deployments and 100 events.
type Report struct {
	Deployments []DeploymentReport `json:"deployments,omitempty" limit:"..500"`
	Events      []EventReport      `json:"events,omitempty" limit:"..100"`
}

// DeploymentReport is what an agent sees of one deployment: running, stopped,
// failed or removed.
type DeploymentReport struct {
	DeploymentID string           `json:"deployment_id"`
	State        DeploymentState  `json:"state"`
	Message      string           `json:"message,omitempty" limit:"..4096"`
	Instance     *RunningInstance `json:"instance,omitempty"`
}

// EventReport is what an agent noticed, as a command that does not verify.
type EventReport struct {
	Kind    string    `json:"kind" limit:"1..40"` // a name of at most 40 characters
	Message string    `json:"message" limit:"..4096"`
	At      time.Time `json:"at"`
}

// Validate bounds the report and names what is malformed.
func (r Report) Validate() error {
	if len(r.Deployments) > 500 || len(r.Events) > 100 {
		return Errorf(TooLarge, "a report has at most 500 deployments and 100 events")
	}
	for _, d := range r.Deployments {
		switch d.State {
		case DeploymentRunning, DeploymentStopped, DeploymentFailed, DeploymentRemoved:
		default:
			return Errorf(Invalid, "deployments: %q: state must be running, stopped, failed or removed", d.DeploymentID)
		}
		if len(d.Message) > MaxMessage {
			return Errorf(Invalid, "deployments: %q: message is longer than %d bytes", d.DeploymentID, MaxMessage)
		}
	}
	for _, e := range r.Events {
		if !nameOf(e.Kind, 40) || len(e.Message) > MaxMessage {
			return Errorf(Invalid, "events: kind is a name of at most 40 characters and message at most %d bytes", MaxMessage)
		}
	}
	return nil
}

// ReportResponse is empty.
type ReportResponse struct{}
