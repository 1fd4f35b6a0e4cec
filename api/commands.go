package api

import (
	"encoding/json"
	"net/http"
	"time"
)

// Commands fetches the calling node's queued and delivered commands in the
// order of seq (PROTOCOL.md section 6); those it returns are delivered.
var Commands = Endpoint[CommandsRequest, CommandsResponse]{Method: http.MethodGet, Path: "/agent/v1/commands"}

// CommandsRequest pages through the queue: after is a seq, limit at most 50.
type CommandsRequest struct {
	After int64 `query:"after" json:"-"` // a seq; those above it
	Limit int   `query:"limit" json:"-"` // at most 50, which is what it is unless said
}

// CommandsResponse holds its items raw: each is decoded by itself, so that one
// which an agent cannot read never hides the next. Cursor is the commands
// cursor this answer is of.
type CommandsResponse struct {
	Commands []json.RawMessage `json:"commands"` // each a CommandItem
	More     bool              `json:"more"`
	Cursor   int64             `json:"cursor"`
}

// CommandItem is one of them: an envelope over a Command, and its state.
type CommandItem struct {
	Envelope
	State State `json:"state"`
}

// Command is the signed document.
type Command struct {
	ID        string          `json:"id"`
	Kind      string          `json:"kind"`
	CreatedAt time.Time       `json:"created_at"`
	ExpiresAt time.Time       `json:"expires_at"`
	StartBy   *time.Time      `json:"start_by,omitempty"` // checked by the agent just before starting
	Payload   json.RawMessage `json:"payload"`
}

// Ack asks whether a command may run (PROTOCOL.md section 6). 200 means yes,
// and that the server will neither expire nor cancel it any more; after any
// other answer it must not run.
var Ack = Endpoint[AckRequest, AckResponse]{
	Method: http.MethodPost, Path: "/agent/v1/commands/{id}/ack",
	Fails: []Code{NotFound, AckedElsewhere, CommandExpired, CommandCanceled, CommandFinished, CommandLost},
}

// AckRequest names the command.
type AckRequest struct {
	ID string `path:"id" json:"-"`
}

// AckResponse says that the command is acked, by the calling instance.
type AckResponse struct {
	State State `json:"state"`
}

// PostResult says what became of a command. The same again is 200 as well; a
// different one is result_differs, and the first stays.
var PostResult = Endpoint[ResultRequest, ResultResponse]{
	Method: http.MethodPost, Path: "/agent/v1/commands/{id}/result", Fails: []Code{ResultDiffers},
}

// ResultRequest names the command and holds its result.
type ResultRequest struct {
	ID string `path:"id" json:"-"`
	Result
}

// Result is what became of a command on the node.
type Result struct {
	Status     Outcome         `json:"status"`
	Reason     string          `json:"reason,omitempty" limit:"..40"`  // one word for a program, as "too_late"
	Error      string          `json:"error,omitempty" limit:"..4096"` // for a person; at most 4 KiB
	Output     json.RawMessage `json:"output,omitempty"`               // of the kind's result type; at most 64 KiB
	StartedAt  *time.Time      `json:"started_at,omitempty"`
	FinishedAt *time.Time      `json:"finished_at,omitempty"`
	Attempt    int             `json:"attempt,omitempty" limit:"0.."` // how often it was started
}

// Validate names what breaks a rule.
func (r ResultRequest) Validate() error {
	switch {
	case !r.Status.known():
		return Errorf(Invalid, "status must be succeeded, failed, rejected, superseded or unknown")
	case len(r.Error) > MaxMessage:
		return Errorf(Invalid, "error is longer than %d bytes", MaxMessage)
	case len(r.Output) > MaxOutput:
		return Errorf(Invalid, "output is longer than %d bytes", MaxOutput)
	case len(r.Reason) > 40:
		return Errorf(Invalid, "reason is longer than 40 bytes")
	case r.Attempt < 0:
		return Errorf(Invalid, "attempt must not be below 0")
	}
	return nil
}

// ResultResponse confirms that the result is stored.
type ResultResponse struct {
	State State `json:"state"` // of the command; empty where no such command is known
}

// SendCommand puts a command of any kind into the queue of a node. With
// "Prefer: wait=N" the answer is 200 and the outcome, or 202 after N seconds.
var SendCommand = Endpoint[SendCommandRequest, SendCommandResponse]{
	Method: http.MethodPost, Path: "/api/v1/commands", Status: http.StatusCreated, Also: []int{http.StatusOK, http.StatusAccepted},
	Fails: []Code{NotFound, NodeInactive, TierTooLow},
}

// SendCommandRequest names a node by id or name, and a kind with its payload.
type SendCommandRequest struct {
	Write
	Node       string          `json:"node" limit:"1.."`                          // id or name
	Kind       string          `json:"kind" limit:"1.."`                          // PROTOCOL.md section 6 lists them
	Payload    json.RawMessage `json:"payload"`                                   // of the kind
	ExpiresInS int             `json:"expires_in_s,omitempty" limit:"0..2592000"` // 900 unless said, at most 30 days
	StartBy    *time.Time      `json:"start_by,omitempty"`
}

// Validate wants a node and a kind, and bounds the expiry.
func (r SendCommandRequest) Validate() error {
	if r.Node == "" || r.Kind == "" {
		return Errorf(Invalid, "node and kind are required")
	}
	if r.ExpiresInS < 0 || time.Duration(r.ExpiresInS)*time.Second > MaxCommandLife {
		return Errorf(Invalid, "expires_in_s must be 0 (900 s) to %d", int(MaxCommandLife.Seconds()))
	}
	return nil
}

// CommandStatus is what is known of a command.
type CommandStatus struct {
	ID          string          `json:"id"`
	NodeID      string          `json:"node_id"`
	Node        string          `json:"node"` // its name
	Seq         int64           `json:"seq"`
	Kind        string          `json:"kind"`
	Payload     json.RawMessage `json:"payload"`
	State       State           `json:"state"`
	Reason      string          `json:"reason,omitempty"`     // why it is in this state, one word
	NeverRan    bool            `json:"never_ran"`            // true only where that is proved
	WaitingOn   string          `json:"waiting_on,omitempty"` // for a person
	CreatedAt   time.Time       `json:"created_at"`
	ExpiresAt   time.Time       `json:"expires_at"`
	DeliveredAt *time.Time      `json:"delivered_at,omitempty"`
	AckedAt     *time.Time      `json:"acked_at,omitempty"`
	EndedAt     *time.Time      `json:"ended_at,omitempty"`
	Result      *Result         `json:"result,omitempty"`
}

// SendCommandResponse is the command as it stands.
type SendCommandResponse struct {
	CommandStatus
	Awaited bool `json:"-"` // the caller waited for the outcome, in vain or not
}

// HTTPStatus is 201; for a caller who waited it is 200 when the command has
// ended, else 202.
func (r SendCommandResponse) HTTPStatus() int { return waitStatus(r.Awaited, r.State.Ended()) }

// Waited reports whether the caller's wish to wait was followed.
func (r SendCommandResponse) Waited() bool { return r.Awaited }

// Location is where the command can be looked at.
func (r SendCommandResponse) Location() string { return "/api/v1/commands/" + r.ID }

// ListCommands lists commands, the newest first.
var ListCommands = Endpoint[ListCommandsRequest, Page[CommandStatus]]{Method: http.MethodGet, Path: "/api/v1/commands", Fails: []Code{NotFound}}

// ListCommandsRequest may name a node, an app by its name, or a state.
type ListCommandsRequest struct {
	Cursor
	Node  string `query:"node" json:"-"` // id or name
	App   string `query:"app" json:"-"`  // id or name
	State State  `query:"state" json:"-"`
}

// Validate refuses a state that there is not.
func (r ListCommandsRequest) Validate() error { return oneOf("state", r.State, States...) }

// GetCommand shows one command.
var GetCommand = Endpoint[CommandRequest, CommandStatus]{Method: http.MethodGet, Path: "/api/v1/commands/{id}", Fails: []Code{NotFound}}

// CommandRequest names a command.
type CommandRequest struct {
	ID string `path:"id" json:"-"`
}

// CancelCommand cancels a command that no agent has acked. Afterwards it has
// provably never run.
var CancelCommand = Endpoint[CancelCommandRequest, CommandStatus]{
	Method: http.MethodPost, Path: "/api/v1/commands/{id}/cancel", Fails: []Code{NotFound, CommandAcked, CommandFinished},
}

// CancelCommandRequest names the command.
type CancelCommandRequest struct {
	Write
	ID string `path:"id" json:"-"`
}
