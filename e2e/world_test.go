// Package e2e runs the real server and the real agent: in one process under
// fake time, and as the built programs.
package e2e

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/agent"
	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
	"github.com/beckon-fleet/beckon/e2e/kit/contract"
	"github.com/beckon-fleet/beckon/e2e/kit/memnet"
	"github.com/beckon-fleet/beckon/server"
)

// world is one server in a bubble, and the way to it. What is set before start
// holds from the next start on.
type world struct {
	t        *testing.T
	data     string
	protocol api.ProtocolRange
	skew     time.Duration // of the server's clock
	log      *slog.Logger
	contract *contract.Contract // what all traffic is held to

	mu        sync.Mutex
	agents    *memnet.Net
	operators *memnet.Net
	server    *server.Server
	stop      func()
	token     string
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, data: filepath.Join(t.TempDir(), "server"), log: slog.New(slog.DiscardHandler), contract: contract.New(t),
	}
	t.Cleanup(func() { w.down() })
	return w
}

// up starts the server.
func (w *world) up() {
	w.t.Helper()
	s, err := server.New(w.t.Context(), server.Config{
		Data: w.data, AgentURL: "https://server", Protocol: w.protocol, Log: w.log,
		Clock: func() time.Time { return time.Now().Add(w.skew) },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if token, err := s.FirstToken(w.t.Context()); err != nil {
		w.t.Fatal(err)
	} else if token != "" {
		w.token = token
	}
	agents, operators := memnet.New(), memnet.New()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx, server.Listeners{Agents: agents, Operators: operators}) }()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.server, w.agents, w.operators = s, agents, operators
	w.stop = func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, net.ErrClosed) {
			w.t.Errorf("the server ended with %v", err)
		}
	}
}

// down stops the server. What dials it meanwhile is refused.
func (w *world) down() {
	w.mu.Lock()
	stop := w.stop
	w.stop = nil
	w.mu.Unlock()
	if stop != nil {
		stop()
	}
}

func (w *world) dialAgents(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	n := w.agents
	w.mu.Unlock()
	return n.Dial(ctx, network, address)
}

// operator calls the operator surface; each call has its own connection.
func operate[Req, Res any](w *world, e api.Endpoint[Req, Res], req Req) (Res, error) {
	w.mu.Lock()
	n := w.operators
	w.mu.Unlock()
	tr := &http.Transport{DialContext: n.Dial}
	defer tr.CloseIdleConnections()
	header := http.Header{"Authorization": {"Bearer " + w.token}}
	return client.Call(w.t.Context(), client.New("http://server", w.contract.Wrap(tr), header), e, req)
}

func must[Req, Res any](w *world, e api.Endpoint[Req, Res], req Req) Res {
	w.t.Helper()
	res, err := operate(w, e, req)
	if err != nil {
		w.t.Fatalf("%s %s: %v", e.Method, e.Path, err)
	}
	return res
}

func (w *world) node(name string) api.Node {
	w.t.Helper()
	return must(w, api.GetNode, api.NodeRequest{Node: name})
}

func (w *world) events(subject string) (kinds []string) {
	w.t.Helper()
	for _, e := range must(w, api.ListEvents, api.ListEventsRequest{Cursor: api.Cursor{Limit: 200}, Subject: subject}).Items {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// program is one agent in the bubble.
type program struct {
	cfg  agent.Config
	stop func() error // ends it and returns what Run did
	done chan struct{}
}

// join makes a node of a state folder.
func (w *world) join(name string, cfg agent.Config) (agent.Config, agent.Joined) {
	w.t.Helper()
	token := must(w, api.CreateJoinToken, api.CreateJoinTokenRequest{Name: name, AllowMachineReuse: true})
	if cfg.State == "" {
		cfg.State = filepath.Join(w.t.TempDir(), name)
	}
	cfg.Dial, cfg.Wrap, cfg.Log = w.dialAgents, w.contract.Wrap, w.log
	cfg.Docker = "unix://" + filepath.Join(w.t.TempDir(), "no-engine.sock")
	joined, err := agent.Join(w.t.Context(), cfg, agent.JoinOptions{URL: token.URL, Token: token.Token, Pin: token.CASHA256})
	if err != nil {
		w.t.Fatalf("join %s: %v", name, err)
	}
	return cfg, joined
}

// run starts the agent of a node that has joined.
func (w *world) run(cfg agent.Config) *program {
	w.t.Helper()
	a, err := agent.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &program{cfg: cfg, done: make(chan struct{})}
	var result error
	go func() {
		defer close(p.done)
		result = a.Run(ctx)
	}()
	p.stop = func() error {
		cancel()
		<-p.done
		return result
	}
	w.t.Cleanup(func() { p.stop() })
	return p
}
