package servertest

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"testing"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/auth"
)

// Agent speaks for a node that has joined.
type Agent struct {
	*Fleet
	ID, Name string
	Instance api.Instance
}

// CSR is a certificate request of key.
func CSR(t testing.TB, key crypto.Signer) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// Key is a new identity key.
func Key(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Token makes a join token.
func (f *Fleet) Token(t testing.TB, req api.CreateJoinTokenRequest) api.CreatedJoinToken {
	t.Helper()
	token, err := f.Nodes.CreateToken(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// Join makes an active node.
func (f *Fleet) Join(t testing.TB, name string) *Agent {
	t.Helper()
	return f.JoinAs(t, api.CreateJoinTokenRequest{Name: name}, api.JoinRequest{})
}

// JoinAs is Join by a token and with words of the machine's own.
func (f *Fleet) JoinAs(t testing.TB, token api.CreateJoinTokenRequest, req api.JoinRequest) *Agent {
	t.Helper()
	req.Token, req.CSR = f.Token(t, token).Token, CSR(t, Key(t))
	res, err := f.Nodes.Join(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return &Agent{f, res.NodeID, res.Name, api.Instance{Epoch: "e1", Starts: 1, Random: "r1"}}
}

// As is the same node, spoken for by another process.
func (a *Agent) As(epoch string, starts int64, random string) *Agent {
	return &Agent{a.Fleet, a.ID, a.Name, api.Instance{Epoch: epoch, Starts: starts, Random: random}}
}

// On is the same agent, calling another server.
func (a *Agent) On(f *Fleet) *Agent { return &Agent{f, a.ID, a.Name, a.Instance} }

// Context is that of a call by the agent.
func (a *Agent) Context(ctx context.Context) context.Context {
	return auth.With(ctx, auth.Caller{Node: a.ID, Protocol: api.Protocol, Version: "1.2.3", Instance: a.Instance})
}

// Beat sends a heartbeat; what says more than that the node is there.
func (a *Agent) Beat(t testing.TB, what api.HeartbeatRequest) api.HeartbeatResponse {
	t.Helper()
	what.CPUCores, what.MemBytes, what.DiskBytes = 8, 32<<30, 512<<30
	res, err := a.Nodes.Heartbeat(a.Context(t.Context()), what)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// Stop queues a command of the kind that needs least.
func (a *Agent) Stop(t testing.TB) api.SendCommandResponse {
	t.Helper()
	return a.Send(t, api.SendCommandRequest{Kind: "stop", Payload: json.RawMessage(`{"app_id": "app_1", "app": "web"}`)})
}

// Send queues a command for the node.
func (a *Agent) Send(t testing.TB, req api.SendCommandRequest) api.SendCommandResponse {
	t.Helper()
	req.Node = a.ID
	res, err := a.Commands.Send(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// Fetch is what the agent's queue answers.
func (a *Agent) Fetch(t testing.TB) api.CommandsResponse {
	t.Helper()
	res, err := a.Commands.Fetch(a.Context(t.Context()), api.CommandsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// Ack acks a command.
func (a *Agent) Ack(t testing.TB, id string) error {
	t.Helper()
	_, err := a.Commands.Ack(a.Context(t.Context()), api.AckRequest{ID: id})
	return err
}

// Result says what became of a command.
func (a *Agent) Result(t testing.TB, id string, r api.Result) (api.State, error) {
	t.Helper()
	res, err := a.Commands.Result(a.Context(t.Context()), api.ResultRequest{ID: id, Result: r})
	return res.State, err
}

// Run acks a command and says what became of it.
func (a *Agent) Run(t testing.TB, id string, r api.Result) {
	t.Helper()
	a.Fetch(t)
	if err := a.Ack(t, id); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Result(t, id, r); err != nil {
		t.Fatal(err)
	}
}

// State is where a command stands.
func (f *Fleet) State(t testing.TB, id string) api.CommandStatus {
	t.Helper()
	status, err := f.Commands.Get(t.Context(), api.CommandRequest{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	return status
}
