package api

import (
	"net/http"
	"time"
)

// Event is something that happened, for people and for scripts that watch.
type Event struct {
	ID      string    `json:"id"` // rises with time
	At      time.Time `json:"at"`
	Kind    string    `json:"kind"` // as node_joined, command_acked, deployment_running
	NodeID  string    `json:"node_id,omitempty"`
	AppID   string    `json:"app_id,omitempty"`
	Subject string    `json:"subject,omitempty"` // id of the command or deployment it is about
	Message string    `json:"message,omitempty"`
}

// ListEvents lists events, the oldest first unless the newest are asked for;
// after is the id of the last one that is known. Who accepts
// application/x-ndjson gets all of them, an object a line, and with follow
// those to come; who accepts text/event-stream gets a stream that goes on. What
// goes on begins now, unless after or since says where.
var ListEvents = Endpoint[ListEventsRequest, Page[Event]]{Method: http.MethodGet, Path: "/api/v1/events"}

// ListEventsRequest may name a node, an app or a subject.
type ListEventsRequest struct {
	Cursor
	Node    string `query:"node" json:"-"` // id or name
	App     string `query:"app" json:"-"`  // id or name
	Subject string `query:"subject" json:"-"`
	Newest  bool   `query:"newest" json:"-"` // the newest first

	Since  time.Time `query:"since" json:"-"`  // not before; RFC 3339
	Follow bool      `query:"follow" json:"-"` // with NDJSON: go on with those to come
}
