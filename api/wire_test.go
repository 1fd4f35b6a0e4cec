package api_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

// The messages as every other implementation reads and writes them.
func TestMessagesOnTheWire(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	one, tier := int64(42), 2
	for want, v := range map[string]any{
		`{"id":"cmd_1","kind":"stop","created_at":"2026-11-30T12:00:00Z","expires_at":"2026-11-30T12:00:00Z","start_by":"2026-11-30T12:00:00Z","payload":{"a":1}}`: api.Command{
			ID: "cmd_1", Kind: "stop", CreatedAt: at, ExpiresAt: at, StartBy: &at, Payload: json.RawMessage(`{"a":1}`),
		},
		`{"data":"{\"id\": 1}","seq":7,"signature":"AQI=","key":"k1","state":"queued"}`: api.CommandItem{
			Envelope: api.Envelope{Data: `{"id": 1}`, Seq: 7, Signature: []byte{1, 2}, Key: "k1"}, State: api.Queued,
		},
		`{"commands":[{"a":1}],"more":true,"cursor":42}`: api.CommandsResponse{Commands: []json.RawMessage{json.RawMessage(`{"a":1}`)}, More: true, Cursor: 42},
		`{"status":"failed","reason":"too_late","error":"no","output":{"a":1},"started_at":"2026-11-30T12:00:00Z","finished_at":"2026-11-30T12:00:00Z","attempt":2}`: api.ResultRequest{
			ID: "cmd_1", Result: api.Result{
				Status: api.OutcomeFailed, Reason: "too_late", Error: "no", Output: json.RawMessage(`{"a":1}`), StartedAt: &at, FinishedAt: &at, Attempt: 2,
			},
		},
		`{"status":"succeeded"}`: api.Result{Status: api.OutcomeSucceeded},
		`{"cpu_cores":8,"mem_bytes":1,"disk_bytes":2,"n":3,"hello":{"boot_id":"b","tier":2},"self":{"rss_bytes":4},"applied":{"commands":0},"unacked_results":["cmd_1"]}`: api.HeartbeatRequest{
			CPUCores: 8, MemBytes: 1, DiskBytes: 2, N: 3, Hello: &api.Hello{BootID: "b", Tier: &tier}, Self: &api.Self{RSSBytes: 4},
			Applied: &api.Applied{}, UnackedResults: []string{"cmd_1"}, Dropped: []string{"x"},
		},
		`{"commands":42}`:            api.CursorsResponse{Cursors: api.Cursors{Commands: &one}, Tag: "x"},
		`{}`:                         api.CursorsResponse{},
		`{"app_id":"a","app":"web"}`: api.StopPayload{AppID: "a", App: "web"},
	} {
		if text, err := json.Marshal(v); err != nil || string(text) != want {
			t.Errorf("%T is written\n%s, not\n%s: %v", v, text, want, err)
		}
	}
}

// What a newer side says beside what is known is no reason to fail.
func TestUnknownMembersAreIgnored(t *testing.T) {
	for text, v := range map[string]any{
		`{"id": "cmd_1", "kind": "stop", "expires_at": "2026-11-30T12:00:00Z", "priority": {"a": [1]}, "payload": {}}`: new(api.Command),
		`{"data": "x", "seq": 1, "signature": "AQI=", "key": "k", "state": "of_a_newer_server", "trace": {}}`:          new(api.CommandItem),
		`{"commands": [], "more": false, "cursor": 1, "hint": null}`:                                                   new(api.CommandsResponse),
		`{"server_time": "2026-11-30T12:00:00Z", "next_s": 10, "cursors": {"secrets": 3}, "config": {}}`:               new(api.HeartbeatResponse),
		`{"type": "/problems/x", "status": 400, "detail": "d", "code": "x", "extra": [1]}`:                             new(api.Error),
	} {
		if err := json.Unmarshal([]byte(text), v); err != nil {
			t.Errorf("%T: %v", v, err)
		}
	}
}

// validator is every request that checks itself.
type validator interface{ Validate() error }

func TestLimitsOfRequests(t *testing.T) {
	deep, tier := strings.Repeat("x", 256), 4
	page := func(n int) api.Report { return api.Report{Events: make([]api.EventReport, n)} }
	for name, c := range map[string]struct {
		req   validator
		words string // of the refusal, "" for a good one
	}{
		"join":                  {api.JoinRequest{Token: "t", CSR: "c"}, ""},
		"join without token":    {api.JoinRequest{CSR: "c"}, "token is required"},
		"join without CSR":      {api.JoinRequest{Token: "t"}, "csr is required"},
		"join, large CSR":       {api.JoinRequest{Token: "t", CSR: strings.Repeat("x", 8<<10+1)}, "csr"},
		"join, short machine":   {api.JoinRequest{Token: "t", CSR: "c", MachineID: "0123"}, "machine_id"},
		"join, odd machine":     {api.JoinRequest{Token: "t", CSR: "c", MachineID: strings.Repeat("/", 64)}, "machine_id"},
		"join, tier 4":          {api.JoinRequest{Token: "t", CSR: "c", Tier: &tier}, "tier"},
		"join, long hostname":   {api.JoinRequest{Token: "t", CSR: "c", Hostname: deep}, "hostname"},
		"join, long version":    {api.JoinRequest{Token: "t", CSR: "c", AgentVersion: deep}, "agent_version"},
		"join, labels":          {api.JoinRequest{Token: "t", CSR: "c", Labels: api.Labels{"": ""}}, "labels"},
		"renew without CSR":     {api.RenewRequest{}, "csr"},
		"renew":                 {api.RenewRequest{CSR: "c"}, ""},
		"nonce":                 {api.TrustRequest{Nonce: strings.Repeat("n", 64)}, ""},
		"no nonce":              {api.TrustRequest{}, ""},
		"long nonce":            {api.TrustRequest{Nonce: strings.Repeat("n", 65)}, "nonce"},
		"odd nonce":             {api.TrustRequest{Nonce: "a b"}, "nonce"},
		"wait":                  {api.CursorsRequest{WaitS: 60}, ""},
		"long wait":             {api.CursorsRequest{WaitS: 61}, "wait"},
		"wait below 0":          {api.CursorsRequest{WaitS: -1}, "wait"},
		"result":                {api.ResultRequest{Result: api.Result{Status: api.OutcomeUnknown, Error: strings.Repeat("x", api.MaxMessage)}}, ""},
		"result without status": {api.ResultRequest{}, "status"},
		"result, odd status":    {api.ResultRequest{Result: api.Result{Status: "lost"}}, "status"},
		"result, long error":    {api.ResultRequest{Result: api.Result{Status: "failed", Error: strings.Repeat("x", api.MaxMessage+1)}}, "error"},
		"result, large output":  {api.ResultRequest{Result: api.Result{Status: "failed", Output: make([]byte, api.MaxOutput+1)}}, "output"},
		"result, long reason":   {api.ResultRequest{Result: api.Result{Status: "failed", Reason: strings.Repeat("x", 41)}}, "reason"},
		"result, attempt -1":    {api.ResultRequest{Result: api.Result{Status: "failed", Attempt: -1}}, "attempt"},
		"command":               {api.SendCommandRequest{Node: "n", Kind: "stop"}, ""},
		"command, nowhere":      {api.SendCommandRequest{Kind: "stop"}, "node"},
		"command, no kind":      {api.SendCommandRequest{Node: "n"}, "kind"},
		"command, expiry -1":    {api.SendCommandRequest{Node: "n", Kind: "stop", ExpiresInS: -1}, "expires_in_s"},
		"command, endless":      {api.SendCommandRequest{Node: "n", Kind: "stop", ExpiresInS: 30*86400 + 1}, "expires_in_s"},
		"token":                 {api.CreateJoinTokenRequest{ExpiresInS: 30 * 86400}, ""},
		"token, bad name":       {api.CreateJoinTokenRequest{Name: "Web 1"}, "name"},
		"token, endless":        {api.CreateJoinTokenRequest{ExpiresInS: 30*86400 + 1}, "expires_in_s"},
		"token, labels":         {api.CreateJoinTokenRequest{Labels: api.Labels{"a": "b,c"}}, "labels"},
		"report, too long":      {page(101), "at most"},
		"report, nameless":      {page(1), "kind"},
		"report, odd state":     {api.Report{Deployments: []api.DeploymentReport{{DeploymentID: "dep_1", State: api.DeploymentWaiting}}}, "state"},
		"report, long message":  {api.Report{Deployments: []api.DeploymentReport{{DeploymentID: "dep_1", State: api.DeploymentFailed, Message: strings.Repeat("x", api.MaxMessage+1)}}}, "message"},
		"report":                {api.Report{Deployments: []api.DeploymentReport{{DeploymentID: "dep_1", State: api.DeploymentRemoved}}, Events: []api.EventReport{{Kind: "command_differs"}}}, ""},
	} {
		err := c.req.Validate()
		switch {
		case c.words == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.words != "" && (err == nil || !strings.Contains(err.Error(), c.words) || !errors.Is(err, api.Invalid) && !errors.Is(err, api.TooLarge)):
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStatusOfSuccess(t *testing.T) {
	command := func(awaited bool, s api.State) api.SendCommandResponse {
		return api.SendCommandResponse{CommandStatus: api.CommandStatus{ID: "cmd_1", State: s}, Awaited: awaited}
	}
	deployed := func(awaited bool, s api.DeploymentState) api.DeployAppResponse {
		return api.DeployAppResponse{Awaited: awaited, Items: []api.Deployment{{State: api.DeploymentRunning}, {State: s}}}
	}
	for name, c := range map[string]struct {
		answer interface{ HTTPStatus() int }
		want   int
	}{
		"sent":                      {command(false, api.Queued), 201},
		"waited in vain":            {command(true, api.Acked), 202},
		"waited for the end":        {command(true, api.Lost), 200},
		"deployed":                  {deployed(false, api.DeploymentWaiting), 201},
		"waited for a start":        {deployed(true, api.DeploymentStarting), 202},
		"waited till it failed":     {deployed(true, api.DeploymentFailed), 200},
		"new app":                   {api.PutAppResponse{Created: true}, 201},
		"changed app":               {api.PutAppResponse{}, 200},
		"nothing to do":             {api.AppCommands{}, 200},
		"commands that have ended":  {api.AppCommands{Items: []api.CommandStatus{{State: api.Failed}}}, 200},
		"commands that are waiting": {api.AppCommands{Items: []api.CommandStatus{{State: api.Failed}, {State: api.Acked}}}, 202},
	} {
		if got := c.answer.HTTPStatus(); got != c.want {
			t.Errorf("%s: %d", name, got)
		}
	}
	if command(false, api.Queued).Location() != "/api/v1/commands/cmd_1" {
		t.Error(command(false, api.Queued).Location())
	}
}

func TestCursorsETag(t *testing.T) {
	one, two := int64(1), int64(2)
	a, b := api.CursorsResponse{Cursors: api.Cursors{Commands: &one}}, api.CursorsResponse{Cursors: api.Cursors{Commands: &two}}
	absent := api.CursorsResponse{Cursors: api.Cursors{Trust: &one}}
	if a.ETag() == b.ETag() || a.ETag() == absent.ETag() || !strings.HasPrefix(a.ETag(), `"`) || !strings.HasSuffix(a.ETag(), `"`) {
		t.Errorf("%s, %s, %s", a.ETag(), b.ETag(), absent.ETag())
	}
	a.KeepETag(`"of a newer server"`)
	if a.ETag() != `"of a newer server"` {
		t.Error(a.ETag())
	}
}
