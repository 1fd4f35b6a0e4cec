package main

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/beckon-fleet/beckon/api"
)

const rolloutHead = "NODE   STATE    REVISION  ADDRESS          DEPLOYMENT"

func page(all ...api.Deployment) api.Page[api.Deployment] {
	return api.Page[api.Deployment]{Items: all}
}

func started(all ...api.Deployment) api.DeployAppResponse {
	return api.DeployAppResponse{Revision: 4, Items: all, Awaited: true}
}

func TestDeployThatRuns(t *testing.T) {
	f := newFar(t)
	waiting, starting := deployment(idDep2, "web-2", api.DeploymentWaiting, ""), deployment(idDep2, "web-2", api.DeploymentStarting, "")
	running1, running2 := deployment(idDep1, "web-1", api.DeploymentRunning, ""), deployment(idDep2, "web-2", api.DeploymentRunning, "")
	answers(f, api.DeployApp, started(running1, waiting), started(running1, running2))
	newer := deployment("dep_newer", "web-1", api.DeploymentWaiting, "")
	answers(f, api.ListDeployments, page(waiting, running1), page(starting, running1), page(newer, running1))
	answers(f, api.GetDeployment, running2)
	answers(f, api.GetNode, web2(), web2(), web1())

	table := lines(rolloutHead,
		"web-1  running  4         127.0.0.1:34567  "+idDep1,
		"web-2  running  4         127.0.0.1:34567  "+idDep2)
	code, out, note := f.run("deploy web")
	expect(t, "deploy", code, out, note, 0, table, lines(
		"web: revision 4",
		"web-1: running at 127.0.0.1:34567",
		"web-2: waiting; the node is offline, seen 3m ago",
		"web-2: starting",
		"web-2: running at 127.0.0.1:34567"))
	if len(f.keys) != 1 || strings.Join(f.wait, " ") != "wait=3" {
		t.Errorf("keys %q, waits %q", f.keys, f.wait)
	}
	code, out, note = f.run("deploy web")
	expect(t, "deploy that is quick", code, out, note, 0, table, "")
}

func TestDeployThatFails(t *testing.T) {
	f := newFar(t)
	running := deployment(idDep1, "web-1", api.DeploymentRunning, "")
	failed := deployment(idDep2, "web-2", api.DeploymentFailed, "the instance exited with code 3\npanic: no\x1b[0m config\ngoroutine 1")
	answers(f, api.DeployApp, started(running, failed))
	code, out, note := f.run("deploy web")
	expect(t, "deploy", code, out, note, 1, lines(rolloutHead,
		"web-1  running  4         127.0.0.1:34567  "+idDep1,
		"web-2  failed   4         -                "+idDep2), lines(
		"web-2: failed: the instance exited with code 3",
		"    panic: no[0m config",
		"    goroutine 1",
		"beckon: revision 4 of web does not run on web-2 (failed)"))

	code, out, note = f.run("deploy web -o json")
	var doc api.DeployAppResponse
	if err := json.Unmarshal([]byte(out), &doc); err != nil || doc.Revision != 4 || len(doc.Items) != 2 || doc.Items[1].Message != failed.Message {
		t.Errorf("%v, stdout %s", err, out)
	}
	if want := `{"code":"failed","detail":"revision 4 of web does not run on web-2 (failed)"}` + "\n"; code != 1 || note != want {
		t.Errorf("exit %d, stderr %s, want %s", code, note, want)
	}
}

func TestDeployThatTakesTooLong(t *testing.T) {
	f := newFar(t)
	waiting := deployment(idDep2, "web-2", api.DeploymentWaiting, "")
	answers(f, api.DeployApp, started(waiting))
	answers(f, api.ListDeployments, page(waiting))
	answers(f, api.GetNode, api.Node{ID: idWeb2, Presence: api.PresenceUnknown})
	table := lines("NODE   STATE    REVISION  ADDRESS  DEPLOYMENT", "web-2  waiting  4         -        "+idDep2)
	code, out, note := f.run("deploy web --timeout 400ms")
	expect(t, "deploy", code, out, note, 8, table, lines(
		"web: revision 4",
		"web-2: waiting; whether the node is there is not known yet",
		"beckon: after 400ms, revision 4 of web is still on its way to web-2 (waiting)",
		"hint: it goes on by itself; `beckon deployment list --app web` shows how far it is"))
	code, out, note = f.run("deploy web --detach")
	expect(t, "deploy --detach", code, out, note, 0, table, "")
	code, _, note = f.run("deploy web --timeout 300ms -o json")
	var problem struct{ Code, Hint string }
	if err := json.Unmarshal([]byte(note), &problem); err != nil || code != 8 || problem.Code != "timed_out" || problem.Hint == "" {
		t.Errorf("exit %d, stderr %s", code, note)
	}
}

func TestDeployThroughBadWeather(t *testing.T) {
	bad := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "Bad Gateway", http.StatusBadGateway) }
	waiting, running := deployment(idDep1, "web-1", api.DeploymentWaiting, ""), deployment(idDep1, "web-1", api.DeploymentRunning, "")
	f := newFar(t)
	answers(f, api.DeployApp, started(waiting))
	answers(f, api.GetNode, bad)
	answers(f, api.ListDeployments, bad, api.Errorf(api.Unavailable, "the server is starting"), page(running), bad)
	code, out, note := f.run("deploy web")
	if code != 0 || strings.Count(note, "trying on") != 1 || !strings.Contains(out, "running") {
		t.Errorf("exit %d\n%s%s", code, out, note)
	}
	code, out, note = f.run("deploy web --timeout 1500ms")
	if code != 6 || out != "" || !strings.Contains(note, "\nbeckon: not an answer of the control plane: status 502") {
		t.Errorf("a server that stays away: exit %d\n%s%s", code, out, note)
	}
	g := newFar(t)
	answers(g, api.DeployApp, started(waiting), api.Errorf(api.NoNodeMatches, "no active node has role=web"))
	answers(g, api.GetNode, web1())
	answers(g, api.ListDeployments, api.Errorf(api.OperatorTokenInvalid, "the operator token was revoked"))
	if code, _, note = g.run("deploy web"); code != 3 {
		t.Errorf("a refusal: exit %d\n%s", code, note)
	}
	code, out, note = g.run("deploy web")
	expect(t, "deploy", code, out, note, 5, "", "beckon: no active node has role=web\n")
}

func TestDeployInterrupted(t *testing.T) {
	f := newFar(t)
	interrupt := func(_ http.ResponseWriter, r *http.Request) {
		syscall.Kill(os.Getpid(), syscall.SIGINT)
		<-r.Context().Done()
	}
	answers(f, api.DeployApp, started(deployment(idDep1, "web-1", api.DeploymentStarting, "")), interrupt)
	answers(f, api.GetNode, web1())
	answers(f, api.ListDeployments, interrupt)
	code, out, note := f.run("deploy web")
	expect(t, "deploy", code, out, note, 130, "", lines(
		"web: revision 4",
		"web-1: starting",
		"beckon: interrupted",
		"hint: it goes on by itself; `beckon deployment list --app web` shows how far it is"))
	code, out, note = f.run("deploy web")
	expect(t, "deploy cut off", code, out, note, 130, "", lines(
		"beckon: interrupted",
		"hint: it may have begun all the same; `beckon deployment list --app web` shows it"))
}
