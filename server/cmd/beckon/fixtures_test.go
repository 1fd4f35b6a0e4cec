package main

import (
	"encoding/json"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

const (
	idWeb1  = "node_019ad5a0-0000-7000-8000-000000000001"
	idWeb2  = "node_019ad5a0-0000-7000-8000-000000000002"
	idApp   = "app_019ad5a0-0000-7000-8000-000000000003"
	idDep1  = "dep_019ad5a0-0000-7000-8000-000000000011"
	idDep2  = "dep_019ad5a0-0000-7000-8000-000000000012"
	idCmd1  = "cmd_019ad5a0-0000-7000-8000-000000000021"
	idCmd2  = "cmd_019ad5a0-0000-7000-8000-000000000022"
	idToken = "tok_019ad5a0-0000-7000-8000-000000000031"
)

func web1() api.Node {
	two := 2
	return api.Node{
		ID: idWeb1, Name: "web-1", Status: api.StatusActive, Presence: api.Online,
		Labels:     api.Labels{"zone": "a", "role": "web"},
		LastSeenAt: before(4 * time.Second), CreatedAt: *before(50 * time.Hour), JoinedAt: before(49 * time.Hour),
		CertificateExpiresAt: before(-20*time.Hour - 5*time.Minute),
		Hostname:             "rack\x1b[2J-7", OS: "linux", Arch: "amd64", AgentVersion: "0.1.0",
		Tier: &two, CPUCores: 8, MemBytes: 33554432000, DiskBytes: 512000000000, Protocol: 1,
		Hello: &api.Hello{Runtimes: map[string]string{"docker": "20.10.24"}},
		Wake:  &api.Wake{Rung: "long_poll"},
	}
}

func web2() api.Node {
	return api.Node{
		ID: idWeb2, Name: "web-2", Status: api.StatusActive, Presence: api.Offline,
		LastSeenAt: before(3 * time.Minute), CreatedAt: *before(time.Hour),
	}
}

func pending() api.Node {
	return api.Node{ID: "node_019ad5a0-0000-7000-8000-000000000009", Status: api.StatusPending, Presence: api.PresenceUnknown, CreatedAt: date}
}

func webApp() api.App {
	return api.App{
		ID: idApp, Name: "web", Revision: 4, CreatedAt: *before(72 * time.Hour), UpdatedAt: *before(90 * time.Minute),
		Placement: api.Placement{Labels: api.Labels{"role": "web"}},
		Spec: api.AppSpec{
			Image: "registry.example/web:4", Command: []string{"serve", "--dir", "/srv"}, Port: 8080,
			Env: map[string]string{"MODE": "fast", "GREETING": "hello, world"}, Resources: api.Resources{CPUCores: 0.5, MemBytes: 256 << 20},
		},
	}
}

func deployment(id, node string, state api.DeploymentState, message string) api.Deployment {
	d := api.Deployment{
		ID: id, AppID: idApp, App: "web", Node: node, Revision: 4, Spec: webApp().Spec, State: state, Message: message,
		CommandID: idCmd1, CreatedAt: *before(time.Minute), UpdatedAt: *before(5 * time.Second),
	}
	d.NodeID = map[string]string{"web-1": idWeb1, "web-2": idWeb2}[node]
	if state == api.DeploymentRunning {
		d.Instance = &api.RunningInstance{
			ID: "4f1c9a", Name: "beckon-web-00000011", Runtime: "docker", Port: 8080, Publish: "127.0.0.1:34567",
			Image: "sha256:77aa", StartedAt: before(15 * time.Second),
		}
	}
	return d
}

func restart(id, node string, state api.State) api.CommandStatus {
	c := api.CommandStatus{
		ID: id, Node: node, Seq: 7, Kind: "restart", State: state, CreatedAt: *before(20 * time.Second), ExpiresAt: *before(-14 * time.Minute),
		Payload: json.RawMessage(`{"app_id":"` + idApp + `","app":"web"}`),
	}
	c.NodeID = map[string]string{"web-1": idWeb1, "web-2": idWeb2}[node]
	switch state {
	case api.Queued:
		c.WaitingOn = "web-2, offline since 11:57"
	case api.Succeeded:
		c.AckedAt, c.EndedAt = before(19*time.Second), before(8*time.Second)
		c.Result = &api.Result{Status: api.OutcomeSucceeded, Output: json.RawMessage(`{"deployment_id":"` + idDep1 + `"}`)}
	case api.Failed:
		c.AckedAt, c.EndedAt = before(19*time.Second), before(8*time.Second)
		c.Result = &api.Result{Status: api.OutcomeFailed, Error: "the instance exited with code 3\nlog line one\nlog line two"}
	case api.Expired:
		c.NeverRan, c.EndedAt, c.Reason = true, before(time.Second), "expired"
	case api.Lost:
		c.AckedAt, c.EndedAt, c.Reason = before(19*time.Second), before(time.Second), "node_revoked"
	}
	return c
}
