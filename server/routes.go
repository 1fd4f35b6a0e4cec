package server

import (
	"context"
	"net/http"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/app"
	"github.com/beckon-fleet/beckon/server/internal/auth"
	"github.com/beckon-fleet/beckon/server/internal/command"
	"github.com/beckon-fleet/beckon/server/internal/rest"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// agentRoutes is every call an agent makes.
func (s *Server) agentRoutes() http.Handler {
	r := rest.NewRouter(false, s.frame)
	rest.Problems(r)
	documents(r, agentDocument)
	r.Group(func(r *rest.Router) {
		rest.Bind(r, api.Trust, s.nodes.Trust)
	}, s.recognise, s.describe(true))
	r.Group(func(r *rest.Router) {
		rest.Bind(r, api.Join, s.nodes.Join)
	}, s.describe(false))
	r.Group(func(r *rest.Router) {
		rest.Bind(r, api.Renew, s.nodes.Renew)
	}, s.identify(api.RenewGrace), s.describe(true))
	r.Group(func(r *rest.Router) {
		rest.Bind(r, api.Heartbeat, s.nodes.Heartbeat)
		rest.Bind(r, api.GetCursors, s.nodes.Cursors)
		rest.Bind(r, api.Commands, s.commands.Fetch)
		rest.Bind(r, api.Ack, s.commands.Ack)
		rest.Bind(r, api.PostResult, s.commands.Result)
		rest.Bind(r, api.PostReport, s.apps.Report)
		rest.Bind(r, api.Leave, s.nodes.Leave)
		rest.Raw(r, api.Stream, s.stream)
		rest.Raw(r, api.GetFile, s.getFile)
		rest.Raw(r, api.HeadFile, s.getFile)
	}, s.identify(0), s.describe(false))
	return r
}

// stream wakes a node. It ends at the latest with the certificate that opened
// it.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) error {
	caller := auth.From(r.Context())
	ctx, cancel := context.WithTimeout(r.Context(), caller.Until.Sub(s.cfg.Clock()))
	defer cancel()
	document := func() []byte { return s.nodes.Document(ctx, caller.Node) }
	return s.hub.Streams.Serve(w, r.WithContext(ctx), caller.Node, document)
}

// operatorRoutes is every call an operator makes.
func (s *Server) operatorRoutes() http.Handler {
	r := rest.NewRouter(true, s.frame)
	r.Once(s.once, auth.Operator)
	rest.Problems(r)
	documents(r, operatorDocument)
	rest.Bind(r, api.Healthz, s.healthz)
	rest.Bind(r, api.Readyz, s.readyz)
	r.Group(func(r *rest.Router) {
		rest.Bind(r, api.GetStatus, s.status)
		rest.Bind(r, api.CreateJoinToken, s.nodes.CreateToken, rest.Again[api.CreateJoinTokenRequest](s.nodes.CreateTokenAgain))
		rest.Bind(r, api.ListJoinTokens, s.nodes.ListTokens)
		rest.Bind(r, api.RevokeJoinToken, s.nodes.RevokeToken)
		rest.Bind(r, api.ListNodes, s.nodes.List)
		rest.Bind(r, api.GetNode, s.nodes.Get)
		rest.Bind(r, api.RevokeNode, s.nodes.Revoke)
		rest.Bind(r, api.PutApp, s.apps.Put)
		rest.Bind(r, api.ListApps, s.apps.List)
		rest.Bind(r, api.GetApp, s.apps.Get)
		rest.Bind(r, api.DeleteApp, s.apps.Delete)
		rest.Bind(r, api.RestartApp, s.apps.Restart)
		rest.Bind(r, api.StopApp, s.apps.Stop)
		rest.Bind(r, api.DeployApp, s.apps.Deploy)
		rest.Bind(r, api.RollbackApp, s.apps.Rollback)
		rest.Raw(r, api.PutFile, s.putFile)
		rest.Bind(r, api.ListFiles, s.files.List)
		rest.Bind(r, api.DeleteFile, s.files.Delete)
		rest.Bind(r, api.ListDeployments, s.apps.ListDeployments)
		rest.Bind(r, api.GetDeployment, s.apps.GetDeployment)
		rest.Bind(r, api.SendCommand, s.commands.Send)
		rest.Bind(r, api.ListCommands, s.commands.List)
		rest.Bind(r, api.GetCommand, s.commands.Get)
		rest.Bind(r, api.CancelCommand, s.commands.Cancel)
		rest.Bind(r, api.ListEvents, s.events.List,
			rest.As[api.ListEventsRequest, api.Page[api.Event]]("application/x-ndjson", s.events.NDJSON),
			rest.As[api.ListEventsRequest, api.Page[api.Event]]("text/event-stream", s.events.SSE))
	}, s.admitOperator)
	return r
}

func (s *Server) healthz(context.Context, api.HealthRequest) (api.HealthResponse, error) {
	return api.HealthResponse{Status: "ok"}, nil
}

// readyz proves that the database takes writes.
func (s *Server) readyz(ctx context.Context, _ api.HealthRequest) (res api.HealthResponse, err error) {
	if err := s.ready.ask(ctx, s.store); err != nil {
		return res, err
	}
	return api.HealthResponse{Status: "ok"}, nil
}

func (s *Server) status(ctx context.Context, _ api.StatusRequest) (res api.Status, err error) {
	res = api.Status{
		Version: s.cfg.Version, ProtocolMin: s.cfg.Protocol.Min, ProtocolMax: s.cfg.Protocol.Max,
		StartedAt: s.started, ServerTime: s.cfg.Clock().UTC(), AgentURL: s.cfg.AgentURL, CASHA256: string(s.Pin()),
	}
	err = s.store.View(ctx, func(tx *store.Tx) error {
		if res.Nodes, err = s.nodes.Presences(tx); err != nil {
			return err
		}
		if res.Deployments, err = app.Counts(tx); err != nil {
			return err
		}
		res.Commands, err = command.Counts(tx)
		return err
	})
	return res, err
}
