package server

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/servertest"
	"github.com/beckon-fleet/beckon/server/internal/store/storetest"
)

// The services know each other: what one is told, all of them act upon.
func TestServicesAreWired(t *testing.T) {
	t.Parallel()
	c := run(t, Config{})
	id, certificate := c.join("web")
	node := c.client(true, certificate)
	as := func(instance string) func(method, path, body string) reply {
		return func(method, path, body string) reply {
			return c.send(node, method, c.agents+"/agent/v1"+path, body, http.Header{"X-Agent-Instance": {instance}, "X-Agent-Version": {"1.0.0"}})
		}
	}
	agent := as("e1.1.r1")
	heartbeat := func(agent func(method, path, body string) reply, more string) (res api.HeartbeatResponse) {
		agent("POST", "/heartbeat", `{"cpu_cores": 8, "mem_bytes": 1, "disk_bytes": 1`+more+`}`).into(t, 200, &res)
		return res
	}
	deploy := func() api.Deployment {
		var res api.DeployAppResponse
		c.operate("POST", "/api/v1/apps/shop/deployments", `{}`).into(t, 201, &res)
		return res.Items[0]
	}
	take := func(d api.Deployment) {
		var fetched api.CommandsResponse
		agent("GET", "/commands", "").into(t, 200, &fetched)
		agent("POST", "/commands/"+d.CommandID+"/ack", `{}`).into(t, 200, &api.AckResponse{})
	}
	state := func(d api.Deployment) api.DeploymentState {
		var now api.Deployment
		c.operate("GET", "/api/v1/deployments/"+d.ID, "").into(t, 200, &now)
		return now.State
	}

	if res := heartbeat(agent, `, "hello": {"tier": "two", "os": "linux"}`); !slices.Equal(res.Warnings, []string{"hello.tier does not fit and was ignored"}) {
		t.Errorf("warnings %q", res.Warnings)
	}
	c.operate("PUT", "/api/v1/apps/shop", `{"image": "shop:1", "node": "web"}`).into(t, 201, &api.App{})
	first := deploy()
	take(first)
	if res := heartbeat(agent, ""); !slices.Equal(res.ResultsWanted, []string{first.CommandID}) || len(res.Active) != 0 {
		t.Errorf("results wanted %v, active %v", res.ResultsWanted, res.Active)
	}
	agent("POST", "/commands/"+first.CommandID+"/result", `{"status": "succeeded", "output": {"instance": {"id": "c1", "runtime": "docker"}}}`).
		into(t, 200, &api.ResultResponse{})
	if res := heartbeat(agent, `, "hello": {}`); !slices.Equal(res.Active, []string{first.ID}) || state(first) != api.DeploymentRunning {
		t.Errorf("active %v, %s", res.Active, state(first))
	}
	agent("POST", "/report", `{"deployments": [{"deployment_id": "`+first.ID+`", "state": "failed", "message": "a\u0000b"}]}`).into(t, 200, &struct{}{})
	if state(first) != api.DeploymentFailed {
		t.Errorf("after a report: %s", state(first))
	}
	second := deploy()
	take(second)
	heartbeat(as("e2.1.r2"), "")
	if state(second) != api.DeploymentUnknown {
		t.Errorf("after the journal was lost: %s", state(second))
	}
	third := deploy()
	var status api.Status
	c.operate("GET", "/api/v1/status", "").into(t, 200, &status)
	if status.Nodes[api.Online] != 1 || status.Commands[api.Queued] != 1 || status.Deployments[api.DeploymentWaiting] != 1 {
		t.Errorf("status %+v", status)
	}
	c.operate("POST", "/api/v1/nodes/web/revoke", `{}`).into(t, 200, &api.Node{})
	if state(third) != api.DeploymentFailed {
		t.Errorf("after the revocation: %s", state(third))
	}
	agent("POST", "/heartbeat", beat).refused(t, "a revoked node", api.NodeRevoked)
	if !strings.HasPrefix(id, "node_") {
		t.Errorf("id %q", id)
	}
}

// odd is what hostile or careless callers put where an id or a word belongs.
var odd = []string{
	"%00", "a%00b", "%ff%fe", "%c3", "..%2f..", "%2e%2e", "%27%20OR%201=1--", "%25", "%", "%zz", "*", "日本", "%F0%9F%92%A9",
	"null", "-1", strings.Repeat("x", 8<<10), strings.Repeat("%41", 2000), "a%20b", "a%0d%0ab", "%7B%7D", "\\", "..;",
}

// Bad input gets a 4xx and never a 5xx, on either database, and changes nothing.
func TestOddInputIsNeverOurFault(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, url string) {
		c := run(t, Config{Database: url})
		_, certificate := c.join("web")
		node := c.client(true, certificate)
		headers := http.Header{"X-Agent-Instance": {"e1.1.r1"}}
		harmless := func(what string, got reply) {
			t.Helper()
			if got.StatusCode >= 500 {
				t.Errorf("%s: %d, %s", what, got.StatusCode, got.body)
			}
		}
		for _, word := range odd {
			for _, q := range []string{
				"GET /api/v1/nodes/?", "POST /api/v1/nodes/?/revoke", "GET /api/v1/apps/?", "PUT /api/v1/apps/?", "DELETE /api/v1/apps/?",
				"POST /api/v1/apps/?/deployments", "POST /api/v1/apps/?/stop", "GET /api/v1/deployments/?", "GET /api/v1/commands/?",
				"POST /api/v1/commands/?/cancel", "DELETE /api/v1/join-tokens/?", "GET /api/v1/nodes?after=?", "GET /api/v1/nodes?limit=?",
				"GET /api/v1/apps?after=?", "GET /api/v1/deployments?app=?", "GET /api/v1/deployments?node=?", "GET /api/v1/deployments?state=?",
				"GET /api/v1/commands?node=?", "GET /api/v1/events?after=?", "GET /api/v1/events?subject=?", "GET /api/v1/events?since=?",
				"GET /api/v1/join-tokens?after=?", "GET /problems/?",
			} {
				method, target, _ := strings.Cut(q, " ")
				i := strings.LastIndex(target, "?")
				target = target[:i] + word + target[i+1:]
				if r, err := http.NewRequest(method, c.operators+target, nil); err != nil || r.URL.Path == "" {
					continue // it cannot be sent
				}
				harmless(method+" "+target, c.operate(method, target, ""))
			}
			for _, q := range []string{"POST /commands/?/ack", "POST /commands/?/result", "GET /commands?after=?", "GET /cursors?wait=?", "GET /trust?nonce=?"} {
				method, target, _ := strings.Cut(q, " ")
				i := strings.LastIndex(target, "?")
				target = "/agent/v1" + target[:i] + word + target[i+1:]
				if _, err := http.NewRequest(method, c.agents+target, nil); err != nil {
					continue
				}
				harmless(method+" "+target, c.send(node, method, c.agents+target, `{"status": "failed"}`, headers))
			}
		}
		for _, text := range []string{`a\u0000b`, "a\xffb", `\ud800`, `\u2028`, strings.Repeat("é", 2000), `'; DROP TABLE nodes; --`} {
			for path, body := range map[string]string{
				"/api/v1/join-tokens":   `{"name": "?"}`,
				"/api/v1/join-tokens ":  `{"replaces": "?"}`,
				"/api/v1/join-tokens  ": `{"labels": {"a": "?"}}`,
				"/api/v1/commands":      `{"node": "?", "kind": "stop", "payload": {"app_id": "a", "app": "web"}}`,
				"/api/v1/commands ":     `{"node": "web", "kind": "?", "payload": {}}`,
				"/api/v1/commands  ":    `{"node": "web", "kind": "stop", "payload": {"app_id": "a", "app": "web", "x": "?"}}`,
			} {
				harmless(path+body, c.operate("POST", strings.TrimSpace(path), strings.ReplaceAll(body, "?", text)))
			}
			harmless("put", c.operate("PUT", "/api/v1/apps/web", strings.ReplaceAll(`{"image": "x", "node": "?", "env": {"A": "?"}}`, "?", text)))
			harmless("deploy", c.operate("POST", "/api/v1/apps/web/deployments", ""))
			for path, body := range map[string]string{
				"/heartbeat":             `{"cpu_cores": 8, "mem_bytes": 1, "disk_bytes": 1, "hello": {"kernel": "?"}}`,
				"/report":                `{"events": [{"kind": "x", "message": "?"}]}`,
				"/report ":               `{"deployments": [{"deployment_id": "?", "state": "failed"}]}`,
				"/commands/cmd_x/result": `{"status": "failed", "reason": "?", "error": "?", "output": {"x": "?"}}`,
			} {
				harmless(path+body, c.send(node, "POST", c.agents+"/agent/v1"+strings.TrimSpace(path), strings.ReplaceAll(body, "?", text), headers))
			}
			harmless("join", c.joinAs(t, text))
		}
		var nodes api.Page[api.Node]
		c.operate("GET", "/api/v1/nodes?status=active&limit=200", "").into(t, 200, &nodes)
		if err := c.nodes.Flush(t.Context()); err != nil {
			t.Errorf("what was taken cannot be stored: %v", err)
		}
		c.operate("GET", "/readyz", "").into(t, 200, &api.HealthResponse{})
	})
}

// joinAs joins a machine that says text of itself wherever it may.
func (c *control) joinAs(t *testing.T, text string) reply {
	t.Helper()
	var token api.CreatedJoinToken
	c.operate("POST", "/api/v1/join-tokens", `{}`).into(t, 201, &token)
	csr, err := json.Marshal(servertest.CSR(t, servertest.Key(t)))
	if err != nil {
		t.Fatal(err)
	}
	body := `{"token": "` + token.Token + `", "csr": ` + string(csr) + `, "hostname": "?", "os": "?", "arch": "?", "agent_version": "?", "prior_node_id": "?"}`
	return c.send(c.client(true, nil), "POST", c.agents+"/agent/v1/join", strings.ReplaceAll(body, "?", text), nil)
}
