package api

import "reflect"

// A Call is an Endpoint or a Raw whose types are known at run time only: what
// documents, routes and completeness tests walk.
type Call interface{ Describe() Description }

// Description is what a Call is. Request and Answer are nil for a Raw.
type Description struct {
	Method, Path    string
	Status          int
	Request, Answer reflect.Type
	ContentType     string // of success
}

// Describe says what e is.
func (e Endpoint[Req, Res]) Describe() Description {
	d := Description{e.Method, e.Path, e.Status, reflect.TypeFor[Req](), reflect.TypeFor[Res](), "application/json"}
	if d.Status == 0 {
		d.Status = 200
	}
	return d
}

// Describe says what r is.
func (r Raw) Describe() Description {
	return Description{Method: r.Method, Path: r.Path, Status: 200, ContentType: r.ContentType}
}

// AgentSurface is every call an agent may make.
var AgentSurface = []Call{
	Trust, Join, Renew, Leave,
	Heartbeat, GetCursors, Stream,
	Commands, Ack, PostResult, PostReport,
}

// OperatorSurface is every call an operator may make.
var OperatorSurface = []Call{
	Healthz, Readyz, GetStatus,
	CreateJoinToken, ListJoinTokens, RevokeJoinToken,
	ListNodes, GetNode, RevokeNode,
	PutApp, ListApps, GetApp, DeleteApp, RestartApp, StopApp, DeployApp,
	ListDeployments, GetDeployment,
	SendCommand, ListCommands, GetCommand, CancelCommand,
	ListEvents,
}
