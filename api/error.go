package api

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

// A Code names a reason, with its noun: one code has one status, for ever.
// The words beside it may change.
type Code string

// The codes (PROTOCOL.md section 14).
const (
	Invalid              Code = "invalid"
	CSRInvalid           Code = "csr_invalid"
	NotFound             Code = "not_found"
	MethodNotAllowed     Code = "method_not_allowed"
	EncodingUnsupported  Code = "encoding_unsupported"
	TooLarge             Code = "too_large"
	Conflict             Code = "conflict"
	NameTaken            Code = "name_taken"
	KeyReused            Code = "idempotency_key_reused"
	KeyInUse             Code = "idempotency_key_in_use"
	Unavailable          Code = "unavailable"
	StorageFull          Code = "storage_full"
	Internal             Code = "internal"
	UpgradeRequired      Code = "upgrade_required"
	OperatorTokenMissing Code = "operator_token_missing"
	OperatorTokenInvalid Code = "operator_token_invalid"
	CertificateMissing   Code = "certificate_missing"
	CertificateInvalid   Code = "certificate_invalid"
	CertificateExpired   Code = "certificate_expired"
	SignatureBad         Code = "signature_bad"
	ClockSkew            Code = "clock_skew"
	NodeUnknown          Code = "node_unknown"
	NodeRevoked          Code = "node_revoked"
	ObjectForeign        Code = "object_foreign"
	WorkloadsRunning     Code = "workloads_running"
	FileInUse            Code = "file_in_use"
	FileMissing          Code = "file_missing"
	NoEarlierRevision    Code = "no_earlier_revision"
	RangeUnsatisfiable   Code = "range_unsatisfiable"
	MachineEnrolled      Code = "machine_already_enrolled"
	TokenInvalid         Code = "token_invalid"
	TokenExpired         Code = "token_expired"
	TokenUsed            Code = "token_used"
	NodeInactive         Code = "node_inactive"
	NoNodeMatches        Code = "no_node_matches"
	TierTooLow           Code = "tier_too_low"
	AckedElsewhere       Code = "acked_elsewhere"
	ResultDiffers        Code = "result_differs"
	CommandAcked         Code = "command_acked"
	CommandExpired       Code = "command_expired"
	CommandCanceled      Code = "command_canceled"
	CommandFinished      Code = "command_finished"
	CommandLost          Code = "command_lost"
)

// Then says what an agent does next. It goes with every problem, so that an
// agent need not know the code.
type Then string

// What a code may ask for.
const (
	ThenRetry  Then = "retry"   // with backoff; also what an unknown code without one means
	ThenGiveUp Then = "give_up" // this request is wrong: a repeat gets the same answer
	ThenSlow   Then = "slow"    // every five minutes, until a person has mended something
	ThenStop   Then = "stop"    // the agent purges what it holds and exits
)

type verdict struct {
	status int
	then   Then
	exit   int    // of an operator's command line
	means  string // what /problems/<code> says
}

// codes is the one table behind the server's status, the client's error, the
// agent's next move and the CLI's exit code. PROTOCOL.md's is checked against it.
var codes = map[Code]verdict{
	Invalid:              {http.StatusBadRequest, ThenGiveUp, 2, "The request breaks a rule; the detail names the member and the rule. Nothing was changed."},
	CSRInvalid:           {http.StatusBadRequest, ThenGiveUp, 2, "The certificate request is not one of an Ed25519 key, or its own signature is wrong. Nothing was changed."},
	NotFound:             {http.StatusNotFound, ThenGiveUp, 4, "What the request names is not there."},
	MethodNotAllowed:     {http.StatusMethodNotAllowed, ThenGiveUp, 2, "There is something at that path, but it does not take this method."},
	EncodingUnsupported:  {http.StatusUnsupportedMediaType, ThenGiveUp, 2, "The Content-Encoding is not known; send gzip or none."},
	TooLarge:             {http.StatusRequestEntityTooLarge, ThenGiveUp, 2, "The body, as sent or inflated, or a document in it is larger than the limit in the detail."},
	Conflict:             {http.StatusConflict, ThenRetry, 5, "What the request builds on has changed meanwhile; look again."},
	NameTaken:            {http.StatusConflict, ThenGiveUp, 5, "The name belongs to something else; choose another one."},
	KeyReused:            {http.StatusUnprocessableEntity, ThenGiveUp, 5, "The Idempotency-Key was used with another body; make a new key for a new request."},
	KeyInUse:             {http.StatusConflict, ThenRetry, 5, "The first request with this Idempotency-Key is still running; ask again."},
	Unavailable:          {http.StatusServiceUnavailable, ThenRetry, 6, "The server cannot do it now; wait as long as Retry-After says."},
	StorageFull:          {http.StatusInsufficientStorage, ThenSlow, 6, "The server's disk is full: what needs writing is refused until there is space, and nothing stored is lost."},
	Internal:             {http.StatusInternalServerError, ThenRetry, 1, "The server failed; its log says why, under the request id in instance."},
	UpgradeRequired:      {http.StatusUpgradeRequired, ThenSlow, 7, "The two sides speak no common protocol; upgrade says which side is to be upgraded. Nothing was changed."},
	OperatorTokenMissing: {http.StatusUnauthorized, ThenGiveUp, 3, "The call needs an operator token as Authorization: Bearer bkn_op_…."},
	OperatorTokenInvalid: {http.StatusUnauthorized, ThenGiveUp, 3, "The operator token is not known; mint one with `beckon server token --data DIR` on the server's machine."},
	CertificateMissing:   {http.StatusUnauthorized, ThenSlow, 3, "The call needs the node's client certificate, and the connection shows none."},
	CertificateInvalid:   {http.StatusUnauthorized, ThenSlow, 3, "The client certificate is not one that this cluster gave to a node."},
	CertificateExpired:   {http.StatusUnauthorized, ThenSlow, 3, "The client certificate has expired. Until 7 days after its end renew still takes it; later the machine must join again."}, // renew is tried first
	SignatureBad:         {http.StatusUnauthorized, ThenSlow, 3, "A signature does not verify."},
	ClockSkew:            {http.StatusUnauthorized, ThenSlow, 3, "The certificate is not valid yet by the server's clock: one of the two clocks is wrong."},
	NodeUnknown:          {http.StatusUnauthorized, ThenSlow, 3, "The certificate is sound, but the node is not known here: the server may have been restored from an older backup."}, // the server may be an old backup: keep the identity
	NodeRevoked:          {http.StatusForbidden, ThenStop, 77, "This node was shut out by an operator, or left. It stays out; the machine can join again with a new token."},          // the only code that ends an identity
	ObjectForeign:        {http.StatusForbidden, ThenGiveUp, 3, "The request names something of another node. All of it was refused."},
	WorkloadsRunning:     {http.StatusConflict, ThenGiveUp, 5, "Deployments may have instances on the node; workloads lists them. Remove them, or leave with force."},
	FileInUse:            {http.StatusConflict, ThenGiveUp, 5, "The file is needed: by an app, by a deployment, or by one of the last revisions of an app. The detail names the apps."},
	FileMissing:          {http.StatusConflict, ThenGiveUp, 5, "The file of that revision is not there any more; upload it again and put the app anew."},
	NoEarlierRevision:    {http.StatusConflict, ThenGiveUp, 5, "No such revision of the app has ever run, so there is nothing to go back to."},
	RangeUnsatisfiable:   {http.StatusRequestedRangeNotSatisfiable, ThenGiveUp, 2, "The Range begins behind the end of the file; Content-Range says how long it is."},
	MachineEnrolled:      {http.StatusConflict, ThenGiveUp, 5, "The machine is an active node already, which the detail names. The token was not used up."},
	TokenInvalid:         {http.StatusUnauthorized, ThenGiveUp, 3, "The join token is not known, or was revoked."},
	TokenExpired:         {http.StatusUnauthorized, ThenGiveUp, 3, "The join token was not used in time."},
	TokenUsed:            {http.StatusConflict, ThenGiveUp, 5, "The join token was used; each is good for one join."},
	NodeInactive:         {http.StatusConflict, ThenGiveUp, 5, "The node is not active, so it takes no commands."},
	NoNodeMatches:        {http.StatusConflict, ThenGiveUp, 5, "No active node has all of the labels."},
	TierTooLow:           {http.StatusConflict, ThenGiveUp, 5, "The node's install allows less than the command needs."},
	AckedElsewhere:       {http.StatusConflict, ThenGiveUp, 5, "Another process of this node acked the command; here it must not run."},
	ResultDiffers:        {http.StatusConflict, ThenGiveUp, 5, "The command has another result already, which stays."},
	CommandAcked:         {http.StatusConflict, ThenGiveUp, 5, "The node's agent has taken the command; it can no longer be canceled."},
	CommandExpired:       {http.StatusGone, ThenGiveUp, 5, "The command was not acked in time; it has never run and must not run."},
	CommandCanceled:      {http.StatusGone, ThenGiveUp, 5, "The command was canceled before it was acked; it has never run and must not run."},
	CommandFinished:      {http.StatusGone, ThenGiveUp, 5, "The command has ended; it must not run again."},
	CommandLost:          {http.StatusGone, ThenGiveUp, 5, "The command was given up as lost or abandoned; it must not run any more."},
}

// Status is the HTTP status that carries c.
func (c Code) Status() int {
	if v, ok := codes[c]; ok {
		return v.status
	}
	return http.StatusInternalServerError
}

// Then is what an agent does after c.
func (c Code) Then() Then { return cmp.Or(codes[c].then, ThenRetry) }

// Exit is the exit code of a command line that ends with c.
func (c Code) Exit() int { return max(codes[c].exit, 1) }

// Meaning is what c means, in a sentence or two; "" for a code of a newer server.
func (c Code) Meaning() string { return codes[c].means }

// Error makes a Code the target of errors.Is.
func (c Code) Error() string { return string(c) }

// Error is the body of every answer that is not a success, as RFC 9457 has
// it. Both sides hold the same value: errors.Is(err, api.NodeRevoked) holds
// across the wire.
type Error struct {
	Type      string   `json:"type"`
	Title     string   `json:"title"`
	Status    int      `json:"status"`
	Detail    string   `json:"detail"` // for the person: what, and what to do
	Code      Code     `json:"code"`
	Then      Then     `json:"then,omitempty"`     // what an agent does next
	Instance  string   `json:"instance,omitempty"` // urn:uuid of the request
	*Versions          // of upgrade_required only
	Workloads []string `json:"workloads,omitempty"` // of workloads_running only: ids of deployments

	RetryAfter time.Duration `json:"-"` // of the header; 0 when it was not said

	cause error // for the log of the side that made it; never on the wire
}

// Versions says which side of an UpgradeRequired is too old. Reason repeats
// the detail under the name that agents of any age read.
type Versions struct {
	Reason        string `json:"error"`
	AgentVersion  string `json:"agent_version"`
	AgentProtocol int    `json:"agent_protocol"`
	SupportedMin  int    `json:"supported_min"`
	SupportedMax  int    `json:"supported_max"`
	Upgrade       string `json:"upgrade"` // "agent" or "control-plane"
}

// Error is the code and the detail.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Detail }

// Unwrap is the cause, which stays on the side that made it.
func (e *Error) Unwrap() error { return e.cause }

// Is makes errors.Is(err, code) hold, here and across the wire.
func (e *Error) Is(target error) bool { return target == e.Code }

// Next is what an agent does after e. Of a code that it does not know it
// believes what the problem says, but for stop: only node_revoked ends an
// identity.
func (e *Error) Next() Then {
	if _, known := codes[e.Code]; known || e.Then == ThenStop {
		return e.Code.Then()
	}
	return cmp.Or(e.Then, ThenRetry)
}

// Because keeps err as the cause, for the log.
func (e *Error) Because(err error) *Error {
	e.cause = err
	return e
}

// Errorf makes an Error whose detail is the formatted text.
func Errorf(c Code, format string, args ...any) *Error {
	return &Error{
		Type:   "/problems/" + string(c),
		Title:  http.StatusText(c.Status()),
		Status: c.Status(),
		Detail: fmt.Sprintf(format, args...),
		Code:   c,
		Then:   c.Then(),
	}
}

// AsError finds the Error in err. What has none is Internal and says no more:
// its words may hold what the caller should not read.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return Errorf(Internal, "the server failed; its log says why").Because(err)
}

// Codes lists every code there is, with its verdict, in the order of the table.
func Codes() []Code { return slices.Sorted(maps.Keys(codes)) }
