package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

func joinToken() api.JoinToken {
	return api.JoinToken{
		ID: idToken, NodeID: idWeb1, Node: "web-1", State: api.TokenStateUnused,
		CreatedAt: *before(time.Minute), ExpiresAt: *before(-time.Hour),
	}
}

func TestTokens(t *testing.T) {
	f := newFar(t)
	command := "beckon-agent join --url https://10.0.0.1:8443 --token bkn_join_A --ca-sha256 ab12"
	answers(f, api.CreateJoinToken, api.CreatedJoinToken{JoinToken: joinToken(), Token: "bkn_join_A", Command: command})
	used := joinToken()
	used.State, used.UsedAt = api.TokenStateUsed, before(10*time.Second)
	answers(f, api.ListJoinTokens, api.Page[api.JoinToken]{Items: []api.JoinToken{joinToken(), used}})
	revoked := joinToken()
	revoked.State = api.TokenStateRevoked
	answers(f, api.RevokeJoinToken, revoked)

	line := "token create --name web-1 --label role=web --label zone=a,b --expires 2h --replaces old --allow-machine-reuse"
	code, out, note := f.run(line)
	expect(t, line, code, out, note, 0, command+"\n", lines(
		"Run this on the machine. It works once, and expires in 1h.",
		"The node will be web-1 ("+idWeb1+"); `beckon node list` shows when it is online."))
	want := `POST /api/v1/join-tokens {"name":"web-1","labels":{"role":"web","zone":"a,b"},"expires_in_s":7200,"replaces":"old","allow_machine_reuse":true}`
	if f.sent[0] != want || len(f.keys) != 1 {
		t.Errorf("sent %s with %d keys, want %s", f.sent[0], len(f.keys), want)
	}
	code, out, note = f.run("token list")
	expect(t, "token list", code, out, note, 0, lines(
		"TOKEN                                     NODE   STATE   CREATED  EXPIRES  USED",
		idToken+"  web-1  unused  1m ago   in 1h    -",
		idToken+"  web-1  used    1m ago   -        10s ago"), "")
	code, out, note = f.run("token revoke " + idToken)
	expect(t, "token revoke", code, out, note, 0, "token "+idToken+" is revoked; nothing will join as web-1 with it\n", "")
}

func TestNodes(t *testing.T) {
	f := newFar(t)
	answers(f, api.ListNodes, api.Page[api.Node]{Items: []api.Node{web1(), web2(), pending()}})
	answers(f, api.GetNode, web1(), web2(), api.Errorf(api.NotFound, "there is no node web-9"))
	revoked := web1()
	revoked.Status, revoked.RevokedAt = api.StatusRevoked, &date
	answers(f, api.RevokeNode, revoked, api.Errorf(api.NodeInactive, "node web-1 is revoked already"))

	code, out, note := f.run("node list --status active")
	expect(t, "node list", code, out, note, 0, lines(
		"NODE                                       STATUS   PRESENCE  SEEN    AGENT  PLATFORM     LABELS",
		"web-1                                      active   online    4s ago  0.1.0  linux/amd64  role=web, zone=a",
		"web-2                                      active   offline   3m ago  -      -            -",
		"node_019ad5a0-0000-7000-8000-000000000009  pending  -         -       -      -            -"), "")
	if want := "GET /api/v1/nodes?limit=100&status=active"; f.sent[0] != want {
		t.Errorf("sent %s, want %s", f.sent[0], want)
	}
	code, out, note = f.run("node show web-1")
	expect(t, "node show", code, out, note, 0, lines(
		"name:               web-1",
		"id:                 node_019ad5a0-0000-7000-8000-000000000001",
		"status:             active",
		"presence:           online",
		"last seen:          2026-11-30 11:59:56 UTC (4s ago)",
		"labels:             role=web, zone=a",
		"hostname:           rack[2J-7",
		"platform:           linux/amd64",
		"cpu cores:          8",
		"memory:             31.2 GiB",
		"disk:               476.8 GiB",
		"agent:              0.1.0",
		"protocol:           1",
		"tier:               2, deploy",
		"wake:               long poll",
		"runtimes:           docker=20.10.24",
		"certificate until:  2026-12-01 08:05:00 UTC (in 20h)",
		"created:            2026-11-28 10:00:00 UTC (2d ago)",
		"joined:             2026-11-28 11:00:00 UTC (2d ago)"), "")
	code, out, note = f.run("node show web-2")
	if code != 0 || note != "" || strings.Count(out, ":  ") != 19 || !strings.Contains(out, "memory:             -\n") || !strings.Contains(out, "tier:               -\n") {
		t.Errorf("what is not known: exit %d\n%s%s", code, out, note)
	}
	code, out, note = f.run("node show web-9")
	expect(t, "node show web-9", code, out, note, 4, "", "beckon: there is no node web-9\n")
	code, out, note = f.run("node revoke web-1")
	expect(t, "node revoke", code, out, note, 0, "node web-1 ("+idWeb1+") is revoked: its calls are refused, "+
		"commands it had not acked are canceled, acked ones are lost\n", "")
	code, out, note = f.run("node revoke web-1")
	expect(t, "node revoke again", code, out, note, 5, "", "beckon: node web-1 is revoked already\n")
}

func TestStatus(t *testing.T) {
	f := newFar(t)
	answers(f, api.GetStatus, api.Status{
		Version: "0.1.0", ProtocolMin: 1, ProtocolMax: 2, StartedAt: *before(26 * time.Hour), AgentURL: "https://10.0.0.1:8443", CASHA256: "ab12",
		Nodes:       map[api.Presence]int{api.Online: 3, api.Offline: 1, api.PresenceUnknown: 0},
		Deployments: map[api.DeploymentState]int{api.DeploymentRunning: 4},
	})
	code, out, note := f.run("status")
	expect(t, "status", code, out, note, 0, lines(
		"server:         "+f.URL,
		"version:        0.1.0",
		"protocol:       1 to 2",
		"started:        2026-11-29 10:00:00 UTC (26h ago)",
		"agents call:    https://10.0.0.1:8443",
		"pin:            ab12",
		"active nodes:   1 offline, 3 online",
		"deployments:    4 running",
		"open commands:  none"), "")
}

func TestDeployments(t *testing.T) {
	f := newFar(t)
	failed := deployment(idDep2, "web-2", api.DeploymentFailed, "the instance exited with code 3 within its observation\nlog one\nlog two")
	answers(f, api.ListDeployments, api.Page[api.Deployment]{Items: []api.Deployment{deployment(idDep1, "web-1", api.DeploymentRunning, ""), failed}})
	answers(f, api.GetDeployment, failed, deployment(idDep1, "web-1", api.DeploymentRunning, ""))

	code, out, note := f.run("deployment list --app web --node web-1 --state running --limit 7")
	expect(t, "deployment list", code, out, note, 0, lines(
		"DEPLOYMENT                                APP  REVISION  NODE   STATE    ADDRESS          SINCE   MESSAGE",
		idDep1+"  web  4         web-1  running  127.0.0.1:34567  5s ago  -",
		idDep2+"  web  4         web-2  failed   -                5s ago  the instance exited with code 3 within its observ…"), "")
	if want := "GET /api/v1/deployments?app=web&limit=7&node=web-1&state=running"; f.sent[0] != want {
		t.Errorf("sent %s, want %s", f.sent[0], want)
	}
	code, out, note = f.run("deployment show " + idDep2)
	expect(t, "deployment show", code, out, note, 0, lines(
		"id:            "+idDep2,
		"app:           web ("+idApp+")",
		"revision:      4",
		"node:          web-2 ("+idWeb2+")",
		"state:         failed",
		"command:       "+idCmd1,
		"created:       2026-11-30 11:59:00 UTC (1m ago)",
		"changed:       2026-11-30 11:59:55 UTC (5s ago)",
		"image:         registry.example/web:4",
		"command:       serve --dir /srv",
		"port:          8080",
		"publish:       -",
		"cpu limit:     0.5 cores",
		"memory limit:  256 MiB",
		"restart:       always",
		"observe:       10s",
		"env:",
		"    GREETING=hello, world",
		"    MODE=fast",
		"message:",
		"    the instance exited with code 3 within its observation",
		"    log one",
		"    log two"), "")
	code, out, _ = f.run("deployment show " + idDep1)
	if code != 0 || !strings.Contains(out, "address:       127.0.0.1:34567\n") || !strings.Contains(out, "instance:      beckon-web-00000011 (4f1c9a)\n") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

func TestCommands(t *testing.T) {
	f := newFar(t)
	answers(f, api.ListCommands, api.Page[api.CommandStatus]{Items: []api.CommandStatus{
		restart(idCmd1, "web-1", api.Succeeded), restart(idCmd2, "web-2", api.Queued), restart(idCmd2, "web-2", api.Failed),
		restart(idCmd2, "web-2", api.Expired), restart(idCmd2, "web-2", api.Lost),
	}})
	answers(f, api.GetCommand, restart(idCmd2, "web-2", api.Failed))
	answers(f, api.CancelCommand, restart(idCmd2, "web-2", api.Expired), api.Errorf(api.CommandAcked, "web-2 has acked it"))

	code, out, note := f.run("command list --node web-2 --app web --state queued")
	expect(t, "command list", code, out, note, 0, lines(
		"COMMAND                                   NODE   KIND     STATE                  CREATED  NOTE",
		idCmd1+"  web-1  restart  succeeded              20s ago  -",
		idCmd2+"  web-2  restart  queued                 20s ago  web-2, offline since 11:57",
		idCmd2+"  web-2  restart  failed                 20s ago  the instance exited with code 3 …",
		idCmd2+"  web-2  restart  expired, never ran     20s ago  -",
		idCmd2+"  web-2  restart  lost, outcome unknown  20s ago  node_revoked"), "")
	code, out, note = f.run("command show " + idCmd2)
	expect(t, "command show", code, out, note, 0, lines(
		"id:          "+idCmd2,
		"kind:        restart",
		"node:        web-2 ("+idWeb2+")",
		"state:       failed",
		"reason:      -",
		"waiting on:  -",
		"created:     2026-11-30 11:59:40 UTC (20s ago)",
		"expires:     2026-11-30 12:14:00 UTC (in 14m)",
		"delivered:   -",
		"acked:       2026-11-30 11:59:41 UTC (19s ago)",
		"ended:       2026-11-30 11:59:52 UTC (8s ago)",
		`payload:     {"app_id":"`+idApp+`","app":"web"}`,
		"result:      failed",
		"output:      -",
		"error:",
		"    the instance exited with code 3",
		"    log line one",
		"    log line two"), "")
	code, out, note = f.run("command cancel " + idCmd2)
	expect(t, "command cancel", code, out, note, 0, "command "+idCmd2+" (restart on web-2) is expired, never ran\n", "")
	code, out, note = f.run("command cancel " + idCmd2)
	expect(t, "command cancel", code, out, note, 5, "", "beckon: web-2 has acked it\n")
}

// TestListsGoThroughAllPages has a server that gives at most three items a
// page, what no client knows yet among them.
func TestListsGoThroughAllPages(t *testing.T) {
	f := newFar(t)
	f.mux.HandleFunc("GET "+api.ListEvents.Path, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		at, step, limit := 1, 1, 3
		if q.Get("newest") == "true" {
			at, step = 7, -1
		}
		if after, err := strconv.Atoi(q.Get("after")); err == nil {
			at = after + step
		}
		if n, err := strconv.Atoi(q.Get("limit")); err == nil {
			limit = min(limit, n)
		}
		items, next := []string{}, ""
		for ; at >= 1 && at <= 7 && len(items) < limit; at += step {
			item := fmt.Sprintf(`{"id":"evt_%d"}`, at)
			if at == 1 {
				item = `{"id":"evt_1","kind":"a","of_tomorrow":1}`
			}
			items = append(items, item)
		}
		if at >= 1 && at <= 7 {
			next = strconv.Itoa(at - step)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"items":[%s],"next":%q}`, strings.Join(items, ","), next)
	})
	ids := func(line string) string {
		code, out, note := f.run(line + " -o json")
		var page struct {
			Items []struct {
				ID         string
				OfTomorrow int `json:"of_tomorrow"`
			}
			Next string
		}
		if err := json.Unmarshal([]byte(out), &page); err != nil || code != 0 || note != "" {
			t.Fatalf("%s: exit %d, %v, %s%s", line, code, err, out, note)
		}
		text := ""
		for _, item := range page.Items {
			text += strings.TrimPrefix(item.ID, "evt_")
			text += strings.Repeat("!", item.OfTomorrow)
		}
		return text + "+" + page.Next
	}
	for line, want := range map[string]string{
		"event list":                       "1!234567+",
		"event list --limit 2":             "67+",
		"event list --after 3":             "4567+",
		"event list --after 3 --limit 3":   "456+6",
		"event list --after= --limit 6":    "1!23456+6",
		"event list --subject x --limit 1": "7+",
	} {
		if got := ids(line); got != want {
			t.Errorf("%s: got %s, want %s", line, got, want)
		}
	}
	_, _, note := f.run("event list --after 3 --limit 3")
	if want := "there are more: --limit N shows more of them, --after 6 goes on\n"; note != want {
		t.Errorf("got %q, want %q", note, want)
	}
}

func TestListThatNeverEnds(t *testing.T) {
	f := newFar(t)
	answers(f, api.ListEvents, api.Page[api.Event]{Items: []api.Event{{ID: "evt_1", At: date, Kind: "a"}}, Next: "1"})
	code, out, _ := f.run("event list --limit 3")
	if code != 0 || strings.Count(out, "\n") != 3 {
		t.Errorf("exit %d\n%s", code, out)
	}
}

func TestEmptyLists(t *testing.T) {
	f := newFar(t)
	answers(f, api.ListNodes, api.Page[api.Node]{Items: []api.Node{}})
	code, out, note := f.run("node list")
	expect(t, "node list", code, out, note, 0, "", "there are no nodes; connect a machine with: beckon token create --name NODE\n")
	code, out, note = f.run("node list --status revoked")
	expect(t, "node list --status", code, out, note, 0, "", "nothing matches\n")
	code, out, note = f.run("node list -o json")
	expect(t, "node list -o json", code, out, note, 0, lines("{", `  "items": []`, "}"), "")
	code, out, note = f.run("node list --limit 0")
	expect(t, "node list --limit 0", code, out, note, 2, "", "beckon: --limit: 0 is not a number above 0\n")
}

func TestNamesThatNameNothing(t *testing.T) {
	f := newFar(t)
	for _, verb := range [][]string{{"node", "show"}, {"node", "revoke"}, {"token", "revoke"}, {"app", "remove"}, {"deploy"}, {"command", "cancel"}} {
		for _, name := range []string{"", ".", ".."} {
			if code, out, _ := f.beckon("", append(verb, name)...); code != 2 || out != "" {
				t.Errorf("%q %q: exit %d, %s", verb, name, code, out)
			}
		}
	}
	if len(f.sent) > 0 {
		t.Errorf("sent %q", f.sent)
	}
	if code, _, _ := f.beckon("", "node", "show", "a/b"); code != 6 || f.sent[0] != "GET /api/v1/nodes/a%2Fb" {
		t.Errorf("exit %d, sent %q", code, f.sent)
	}
}
