// Package server is the control plane. A request flows: listener (TLS 1.3) →
// middleware.go (request id, identity, protocol) → rest.Bind (decode, validate)
// → a service method (one transaction) → JSON.
package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
	"github.com/beckon-fleet/beckon/internal/durable"
	"github.com/beckon-fleet/beckon/server/internal/app"
	"github.com/beckon-fleet/beckon/server/internal/auth"
	"github.com/beckon-fleet/beckon/server/internal/command"
	"github.com/beckon-fleet/beckon/server/internal/event"
	"github.com/beckon-fleet/beckon/server/internal/file"
	"github.com/beckon-fleet/beckon/server/internal/node"
	"github.com/beckon-fleet/beckon/server/internal/nudge"
	"github.com/beckon-fleet/beckon/server/internal/once"
	"github.com/beckon-fleet/beckon/server/internal/pki"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// Server is one control plane.
type Server struct {
	cfg       Config
	unlock    func()
	store     *store.Store
	authority *pki.Authority
	hub       *nudge.Hub
	verifier  *auth.Verifier
	operators *auth.Operators
	nodes     *node.Service
	commands  *command.Service
	apps      *app.Service
	files     *file.Service
	events    *event.Service
	once      *once.Keeper
	started   time.Time
	stopping  chan struct{}
	ready     readiness
}

// New opens the data folder, and makes at the first start what is missing in
// it: keys, certificates, database. It refuses a folder that another server
// uses, damaged keys, and a database of a newer version. Run or Close ends it.
func New(ctx context.Context, cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := durable.Dir(cfg.Data); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	unlock, err := store.Lock(cfg.Data)
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, cfg)
	if err != nil {
		unlock()
		return nil, err
	}
	s.unlock = unlock
	return s, nil
}

func open(ctx context.Context, cfg Config) (*Server, error) {
	authority, err := pki.Open(cfg.Data, cfg.Clock, cfg.Names)
	if err != nil {
		return nil, err
	}
	st, err := store.Open(ctx, cfg.Database, cfg.Clock)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	s := &Server{cfg: cfg, store: st, authority: authority, hub: nudge.NewHub(), stopping: make(chan struct{}), started: cfg.Clock().UTC()}
	s.wire()
	if err := errors.Join(durable.Dir(s.files.Dir), s.files.Start()); err != nil {
		return nil, errors.Join(fmt.Errorf("folder of files: %w", err), st.Close())
	}
	if missing := s.commands.Unfollowed(); len(missing) > 0 {
		st.Close()
		return nil, fmt.Errorf("nothing follows the commands %v", missing)
	}
	return s, nil
}

// wire is who knows whom.
func (s *Server) wire() {
	s.verifier = &auth.Verifier{CA: s.authority.CA(), Clock: s.cfg.Clock}
	s.operators = &auth.Operators{Store: s.store}
	s.events = &event.Service{Store: s.store, Stopping: s.stopping, Log: s.cfg.Log}
	s.once = &once.Keeper{Store: s.store}
	s.nodes = &node.Service{
		Store: s.store, Hub: s.hub, Authority: s.authority, Clock: s.cfg.Clock, Log: s.cfg.Log,
		Pace: s.cfg.Pace.Heartbeat, AgentURL: s.cfg.AgentURL,
	}
	s.commands = &command.Service{Store: s.store, Hub: s.hub, Signer: s.authority.Signer(), Waiting: s.nodes.Waiting}
	s.apps = &app.Service{Store: s.store, Commands: s.commands}
	s.apps.Follow()
	s.files = &file.Service{Store: s.store, Dir: filepath.Join(s.cfg.Data, "files"), Log: s.cfg.Log, Users: app.Users, Serves: app.Serves}
	s.nodes.Reset = s.commands.Reset
	s.nodes.Wanted = command.Wanted
	s.nodes.Active = app.Active
	s.nodes.Running = app.Running
	s.nodes.Left = func(tx *store.Tx, node, reason string) error {
		return errors.Join(s.commands.Left(tx, node, reason), s.apps.Left(tx, node, reason))
	}
	s.nodes.Start()
}

// Close ends a server that is not to Run.
func (s *Server) Close() {
	s.store.Close()
	s.unlock()
}

// Pin is the fingerprint of the cluster's CA, which agents and remote command
// lines hold against what they are shown.
func (s *Server) Pin() seal.Pin { return s.authority.Pin() }

// FirstToken mints an operator token when there is none yet, which is at the
// first start; else it returns "".
func (s *Server) FirstToken(ctx context.Context) (string, error) {
	any, err := s.operators.Any(ctx)
	if err != nil || any {
		return "", err
	}
	return s.operators.Mint(ctx)
}

// MintToken mints an operator token in the data folder of a server that may be
// running: the way back in for whoever owns the machine.
func MintToken(ctx context.Context, cfg Config) (string, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return "", err
	}
	if !pki.Exists(cfg.Data) {
		return "", api.Errorf(api.NotFound, "there is no server in %s; start one with `beckon server --data %s`", cfg.Data, cfg.Data)
	}
	st, err := store.Open(ctx, cfg.Database, cfg.Clock)
	if err != nil {
		return "", fmt.Errorf("open database: %w", err)
	}
	defer st.Close()
	return (&auth.Operators{Store: st}).Mint(ctx)
}
