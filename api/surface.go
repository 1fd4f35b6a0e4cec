package api

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"strings"
)

// A Call is an Endpoint or a Raw whose types are known at run time only: what
// documents, routes and completeness tests walk.
type Call interface{ Describe() Description }

// Description is what a Call is. Request is nil for a Raw, and Answer too where
// it is no JSON; Params are what a Raw reads beside its body, or nil.
type Description struct {
	Method, Path    string
	Status          int   // of success
	Also            []int // the other statuses of success
	Request, Answer reflect.Type
	Params          reflect.Type
	Ranges          bool
	Takes           string   // content type of the request's body; "" for none
	ContentType     string   // of success
	As              []string // what a caller may accept instead
	Open, Frozen    bool
	Fails           []Code // what the call declares; Codes says all
}

// Describe says what e is.
func (e Endpoint[Req, Res]) Describe() Description {
	d := Description{
		Method: e.Method, Path: e.Path, Status: cmp.Or(e.Status, http.StatusOK), Also: e.Also,
		Request: reflect.TypeFor[Req](), Answer: reflect.TypeFor[Res](), ContentType: "application/json", As: e.As,
		Open: e.Open, Frozen: e.Frozen, Fails: e.Fails,
	}
	if e.HasBody() {
		d.Takes = "application/json"
	}
	return d
}

// Describe says what r is.
func (r Raw) Describe() Description {
	return Description{
		Method: r.Method, Path: r.Path, Status: cmp.Or(r.Status, http.StatusOK), Also: r.Also, Answer: reflect.TypeOf(r.Answer),
		Params: reflect.TypeOf(r.Params), Ranges: r.Ranges,
		Takes: r.Takes, ContentType: r.ContentType, Open: r.Open, Fails: r.Fails,
	}
}

// Codes is every code that may answer the call, in the order of statuses: what
// it declares, and what comes with the way it is called. The latter is said
// here and nowhere else.
func (d Description) Codes() []Code {
	agent := strings.HasPrefix(d.Path, "/agent/")
	codes := append([]Code{Internal}, d.Fails...)
	if agent || d.Request != nil || d.Params != nil { // a header or a member
		codes = append(codes, Invalid)
	}
	if d.Ranges && d.Method == http.MethodGet { // for others RFC 9110 knows no ranges
		codes = append(codes, RangeUnsatisfiable)
	}
	if d.Takes == "application/json" { // a body that is read as a whole
		codes = append(codes, TooLarge, EncodingUnsupported)
	}
	if !d.Open { // who calls is looked up in the database
		codes = append(codes, Unavailable, StorageFull)
	}
	switch {
	case d.Open:
	case agent:
		codes = append(codes, CertificateMissing, CertificateInvalid, CertificateExpired, ClockSkew, NodeUnknown, NodeRevoked)
	default:
		codes = append(codes, OperatorTokenMissing, OperatorTokenInvalid)
	}
	if agent && !d.Frozen {
		codes = append(codes, UpgradeRequired)
	}
	if d.takesKey() {
		codes = append(codes, KeyReused, KeyInUse, Conflict)
	}
	slices.SortFunc(codes, func(a, b Code) int { return cmp.Or(cmp.Compare(a.Status(), b.Status()), cmp.Compare(a, b)) })
	return slices.Compact(codes)
}

// takesKey reports whether a request may carry an Idempotency-Key.
func (d Description) takesKey() (takes bool) {
	if d.Request == nil {
		return false
	}
	eachParam(reflect.New(d.Request).Elem(), func(_, name string, _ reflect.Value) error {
		takes = takes || name == HeaderIdempotencyKey
		return nil
	})
	return takes
}

// AgentSurface is every call an agent may make.
var AgentSurface = []Call{
	Trust, Join, Renew, Leave,
	Heartbeat, GetCursors, Stream,
	Commands, Ack, PostResult, PostReport,
	GetFile, HeadFile,
}

// OperatorSurface is every call an operator may make.
var OperatorSurface = []Call{
	Healthz, Readyz, GetStatus,
	CreateJoinToken, ListJoinTokens, RevokeJoinToken,
	ListNodes, GetNode, RevokeNode,
	PutApp, ListApps, GetApp, DeleteApp, RestartApp, StopApp, DeployApp, RollbackApp,
	PutFile, ListFiles, DeleteFile,
	ListDeployments, GetDeployment,
	SendCommand, ListCommands, GetCommand, CancelCommand,
	ListEvents,
}
