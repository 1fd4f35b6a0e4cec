package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/app"
	"github.com/beckon-fleet/beckon/server/internal/servertest"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

func wantCode(t *testing.T, what string, err error, code api.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Errorf("%s: want %s, got %v", what, code, err)
	}
}

// put wishes for the app web at a place.
func put(t *testing.T, f *servertest.Fleet, at api.Placement) api.PutAppResponse {
	t.Helper()
	res, err := f.Apps.Put(t.Context(), api.PutAppRequest{App: "web", AppSpec: api.AppSpec{Image: "web:1", Port: 80}, Placement: at})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// deploy makes a new revision of web, which goes to one node.
func deploy(t *testing.T, f *servertest.Fleet) api.Deployment {
	t.Helper()
	res, err := f.Apps.Deploy(t.Context(), api.ChangeAppRequest{App: "web"})
	if err != nil || len(res.Items) != 1 {
		t.Fatalf("deploy: %+v, %v", res, err)
	}
	return res.Items[0]
}

// runs is the result of a deploy whose instance is id.
func runs(id string) api.Result {
	return api.Result{Status: api.OutcomeSucceeded, Output: output(api.DeployResult{Instance: api.RunningInstance{ID: id, Runtime: "docker"}})}
}

func output(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// is fails where a deployment is not in a state, or its message says no word.
func is(t *testing.T, f *servertest.Fleet, id string, want api.DeploymentState, word string) {
	t.Helper()
	d, err := f.Apps.GetDeployment(t.Context(), api.DeploymentRequest{ID: id})
	if err != nil || d.State != want || !strings.Contains(d.Message, word) {
		t.Errorf("want %s with %q, got %s: %q, %v", want, word, d.State, d.Message, err)
	}
}

// world is a node with the app web wished for on it.
func world(t *testing.T, f *servertest.Fleet) *servertest.Agent {
	t.Helper()
	a := f.Join(t, "node-1")
	put(t, f, api.Placement{Node: "node-1"})
	return a
}

// act asks for something to be done with web on its one node, and has the
// agent do it.
func act(t *testing.T, a *servertest.Agent, do func(context.Context, api.ChangeAppRequest) (api.AppCommands, error), r api.Result) {
	t.Helper()
	res, err := do(t.Context(), api.ChangeAppRequest{App: "web"})
	if err != nil || len(res.Items) != 1 || res.HTTPStatus() != 202 {
		t.Fatalf("got %+v, %v", res, err)
	}
	a.Run(t, res.Items[0].ID, r)
}

func TestStopRestartRemove(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := world(t, f)
		d := deploy(t, f)
		a.Run(t, d.CommandID, runs("c1"))
		failed := api.Result{Status: api.OutcomeFailed, Error: "no engine"}

		act(t, a, f.Apps.Stop, failed)
		is(t, f, d.ID, api.DeploymentRunning, "")
		act(t, a, f.Apps.Stop, api.Result{Status: api.OutcomeSucceeded, Output: output(api.StopResult{DeploymentIDs: []string{d.ID}})})
		is(t, f, d.ID, api.DeploymentStopped, "by an operator")

		act(t, a, f.Apps.Restart, failed)
		is(t, f, d.ID, api.DeploymentStopped, "")
		act(t, a, f.Apps.Restart, api.Result{Status: api.OutcomeSucceeded, Output: json.RawMessage(`"rubbish"`)})
		act(t, a, f.Apps.Restart, api.Result{Status: api.OutcomeSucceeded})
		is(t, f, d.ID, api.DeploymentStopped, "")
		act(t, a, f.Apps.Restart, api.Result{Status: api.OutcomeSucceeded, Output: output(api.RestartResult{
			DeploymentID: d.ID, Instance: api.RunningInstance{ID: "c1", Restarts: 2},
		})})
		is(t, f, d.ID, api.DeploymentRunning, "")

		act(t, a, f.Apps.Delete, failed)
		is(t, f, d.ID, api.DeploymentRunning, "")
		act(t, a, f.Apps.Delete, api.Result{Status: api.OutcomeSucceeded})
		is(t, f, d.ID, api.DeploymentRemoved, "")
		_, err := f.Apps.Get(t.Context(), api.AppRequest{App: "web"})
		wantCode(t, "the app after its last instance", err, api.NotFound)
		if got := f.EventsOf(t, d.AppID); got[len(got)-1] != "app_removed" {
			t.Errorf("events %v", got)
		}
		page, err := f.Apps.ListDeployments(t.Context(), api.ListDeploymentsRequest{App: "web", State: api.DeploymentRemoved})
		if err != nil || len(page.Items) != 1 {
			t.Errorf("its history: %+v, %v", page, err)
		}
	})
}

func TestAppThatIsNowhere(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		world(t, f)
		for name, do := range map[string]func(context.Context, api.ChangeAppRequest) (api.AppCommands, error){
			"stop": f.Apps.Stop, "restart": f.Apps.Restart,
		} {
			res, err := do(t.Context(), api.ChangeAppRequest{App: "web"})
			if err != nil || res.Items == nil || len(res.Items) != 0 || res.HTTPStatus() != 200 {
				t.Errorf("%s: %+v, %v", name, res, err)
			}
		}
		res, err := f.Apps.Delete(t.Context(), api.ChangeAppRequest{App: "web"})
		if err != nil || res.Items == nil || len(res.Items) != 0 || res.HTTPStatus() != 200 {
			t.Errorf("delete: %+v, %v", res, err)
		}
		_, err = f.Apps.Delete(t.Context(), api.ChangeAppRequest{App: "web"})
		wantCode(t, "once more", err, api.NotFound)
		_, err = f.Apps.Deploy(t.Context(), api.ChangeAppRequest{App: "web"})
		wantCode(t, "deploy it", err, api.NotFound)
	})
}

// An app that is put again while its instances go stays, without instances.
func TestPutWhileRemoving(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := world(t, f)
		d := deploy(t, f)
		a.Run(t, d.CommandID, runs("c1"))
		removal, err := f.Apps.Delete(t.Context(), api.ChangeAppRequest{App: "web"})
		if err != nil || len(removal.Items) != 1 {
			t.Fatalf("delete: %+v, %v", removal, err)
		}
		if res := put(t, f, api.Placement{Node: "node-1"}); res.Created || res.ID != d.AppID {
			t.Errorf("put again: %+v", res)
		}
		a.Run(t, removal.Items[0].ID, api.Result{Status: api.OutcomeSucceeded})
		is(t, f, d.ID, api.DeploymentRemoved, "")
		if got, err := f.Apps.Get(t.Context(), api.AppRequest{App: d.AppID}); err != nil || got.Name != "web" {
			t.Errorf("the app is %+v, %v", got, err)
		}
	})
}

// A removal that never ran leaves the app while its instance may be there, and
// can be asked for again. When the node is shut out, nothing is in its way.
func TestRemovalThatExpired(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := world(t, f)
		d := deploy(t, f)
		a.Run(t, d.CommandID, runs("c1"))
		if _, err := f.Apps.Delete(t.Context(), api.ChangeAppRequest{App: "web"}); err != nil {
			t.Fatal(err)
		}
		f.Clock.Move(api.CommandLife)
		if err := f.Commands.Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
		is(t, f, d.ID, api.DeploymentRunning, "")
		if res, err := f.Apps.Delete(t.Context(), api.ChangeAppRequest{App: "web"}); err != nil || len(res.Items) != 1 {
			t.Errorf("again: %+v, %v", res, err)
		}
		if _, err := f.Nodes.Revoke(t.Context(), api.RevokeNodeRequest{Node: a.ID}); err != nil {
			t.Fatal(err)
		}
		is(t, f, d.ID, api.DeploymentUnknown, "node_revoked")
		_, err := f.Apps.Get(t.Context(), api.AppRequest{App: "web"})
		wantCode(t, "the app", err, api.NotFound)
	})
}

func TestPlacement(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		low := int(api.TierOperate)
		for name, labels := range map[string]api.Labels{
			"a": {"env": "prod", "disk": "ssd"}, "b": {"env": "prod"}, "c": {"env": "test", "disk": "ssd"}, "d": nil,
		} {
			f.JoinAs(t, api.CreateJoinTokenRequest{Name: name, Labels: labels}, api.JoinRequest{})
		}
		f.JoinAs(t, api.CreateJoinTokenRequest{Name: "low", Labels: api.Labels{"tier": "low"}}, api.JoinRequest{Tier: &low})
		f.JoinAs(t, api.CreateJoinTokenRequest{Name: "also-low", Labels: api.Labels{"tier": "low"}}, api.JoinRequest{})
		f.JoinAs(t, api.CreateJoinTokenRequest{Name: "gone", Labels: api.Labels{"env": "prod"}}, api.JoinRequest{})
		if _, err := f.Nodes.Revoke(t.Context(), api.RevokeNodeRequest{Node: "gone"}); err != nil {
			t.Fatal(err)
		}
		f.Token(t, api.CreateJoinTokenRequest{Name: "pending", Labels: api.Labels{"env": "prod"}})
		for _, c := range []struct {
			at   api.Placement
			want []string
			code api.Code
		}{
			{at: api.Placement{Node: "d"}, want: []string{"d"}},
			{at: api.Placement{Labels: api.Labels{"env": "prod"}}, want: []string{"a", "b"}},
			{at: api.Placement{Labels: api.Labels{"env": "prod", "disk": "ssd"}}, want: []string{"a"}},
			{at: api.Placement{Labels: api.Labels{"env": ""}}, code: api.NoNodeMatches},
			{at: api.Placement{Labels: api.Labels{"env": "prod", "disk": "tape"}}, code: api.NoNodeMatches},
			{at: api.Placement{Node: "nobody"}, code: api.NotFound},
			{at: api.Placement{Node: "gone"}, code: api.NodeInactive},
			{at: api.Placement{Node: "pending"}, code: api.NodeInactive},
			{at: api.Placement{Labels: api.Labels{"tier": "low"}}, code: api.TierTooLow},
		} {
			before := put(t, f, c.at).Revision
			res, err := f.Apps.Deploy(t.Context(), api.ChangeAppRequest{App: "web"})
			var got []string
			for _, d := range res.Items {
				got = append(got, d.Node)
			}
			if c.code != "" {
				wantCode(t, string(c.code), err, c.code)
				if a := put(t, f, c.at); a.Revision != before {
					t.Errorf("%+v: a refused deploy made revision %d", c.at, a.Revision)
				}
				continue
			}
			if err != nil || !slices.Equal(got, c.want) || res.HTTPStatus() != 201 || res.Revision != before+1 {
				t.Errorf("%+v: want %v, got %v, %d, %v", c.at, c.want, got, res.HTTPStatus(), err)
			}
		}
		if n := f.Count(t, `FROM commands`) - f.Count(t, `FROM deployments`); n != 0 {
			t.Errorf("%d more commands than deployments", n)
		}
	})
}

func TestListsOfAppsAndDeployments(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		f.Join(t, "a")
		f.Join(t, "b")
		var all []string
		for _, name := range []string{"zoo", "api", "web"} {
			_, err := f.Apps.Put(t.Context(), api.PutAppRequest{App: name, AppSpec: api.AppSpec{Image: "x"}, Placement: api.Placement{Node: "a"}})
			if err != nil {
				t.Fatal(err)
			}
			res, err := f.Apps.Deploy(t.Context(), api.ChangeAppRequest{App: name})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, res.Items[0].ID)
		}
		var names []string
		for after := ""; ; {
			page, err := f.Apps.List(t.Context(), api.ListAppsRequest{Cursor: api.Cursor{Limit: 2, After: after}})
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range page.Items {
				names = append(names, item.Name)
			}
			if after = page.Next; after == "" {
				break
			}
		}
		if !slices.Equal(names, []string{"api", "web", "zoo"}) {
			t.Errorf("apps %v", names)
		}
		for _, c := range []struct {
			req  api.ListDeploymentsRequest
			want []string
		}{
			{api.ListDeploymentsRequest{}, []string{all[2], all[1], all[0]}},
			{api.ListDeploymentsRequest{App: "api"}, []string{all[1]}},
			{api.ListDeploymentsRequest{Node: "b"}, nil},
			{api.ListDeploymentsRequest{Node: "a", State: api.DeploymentWaiting}, []string{all[2], all[1], all[0]}},
			{api.ListDeploymentsRequest{State: api.DeploymentFailed}, nil},
			{api.ListDeploymentsRequest{Cursor: api.Cursor{Limit: 1, After: all[2]}}, []string{all[1]}},
		} {
			page, err := f.Apps.ListDeployments(t.Context(), c.req)
			var got []string
			for _, d := range page.Items {
				got = append(got, d.ID)
			}
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%+v: want %v, got %v, %v", c.req, c.want, got, err)
			}
		}
		if _, err := f.Apps.GetDeployment(t.Context(), api.DeploymentRequest{ID: "dep_none"}); !errors.Is(err, api.NotFound) {
			t.Errorf("no deployment: %v", err)
		}
		var counts map[api.DeploymentState]int
		err := f.Store.View(t.Context(), func(tx *store.Tx) (err error) {
			counts, err = app.Counts(tx)
			return err
		})
		if err != nil || len(counts) != 1 || counts[api.DeploymentWaiting] != 3 {
			t.Errorf("counts %v, %v", counts, err)
		}
	})
}

// An app that was to go goes with the last thing that was in its way, though
// neither its deploy nor its removal ever reached the node.
func TestRemovalOfWhatNeverRan(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		world(t, f)
		d := deploy(t, f)
		if _, err := f.Apps.Delete(t.Context(), api.ChangeAppRequest{App: "web"}); err != nil {
			t.Fatal(err)
		}
		f.Clock.Move(api.CommandLife)
		if err := f.Commands.Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
		is(t, f, d.ID, api.DeploymentFailed, "nothing was changed")
		_, err := f.Apps.Get(t.Context(), api.AppRequest{App: "web"})
		wantCode(t, "the app", err, api.NotFound)
	})
}
