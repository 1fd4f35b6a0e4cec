package api

import (
	"net/http"
	"time"
)

// Stream is the event stream that wakes a node (PROTOCOL.md section 4). Its
// events are cursors, replaced and revoked, with comments in between. It never
// carries work, nor secrets; a lost event costs latency only.
var Stream = Raw{Method: http.MethodGet, Path: "/agent/v1/stream", ContentType: "text/event-stream"}

// The events of the stream. The data of the first is a Cursors document, of
// the others an empty object.
const (
	StreamCursors  = "cursors"  // on connect, and when they change
	StreamReplaced = "replaced" // a newer stream of the node took over
	StreamRevoked  = "revoked"  // a hint: the answer to the next call says so
)

// Keepalive is the longest silence of a healthy stream: a comment comes at
// least as often.
const Keepalive = 15 * time.Second
