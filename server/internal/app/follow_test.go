package app_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/servertest"
)

func TestDeploymentFollowsItsCommand(t *testing.T) {
	finish := func(r api.Result) func(*testing.T, *servertest.Agent, string) {
		return func(t *testing.T, a *servertest.Agent, id string) { a.Run(t, id, r) }
	}
	for name, c := range map[string]struct {
		do   func(*testing.T, *servertest.Agent, string)
		want api.DeploymentState
		says string
	}{
		"queued":    {func(*testing.T, *servertest.Agent, string) {}, api.DeploymentWaiting, "waiting for node node-1, not seen yet"},
		"delivered": {func(t *testing.T, a *servertest.Agent, _ string) { a.Fetch(t) }, api.DeploymentWaiting, "waiting for"},
		"acked": {func(t *testing.T, a *servertest.Agent, id string) {
			a.Fetch(t)
			if err := a.Ack(t, id); err != nil {
				t.Fatal(err)
			}
		}, api.DeploymentStarting, "waiting for"},
		"succeeded":              {finish(runs("c1")), api.DeploymentRunning, ""},
		"succeeded with nothing": {finish(api.Result{Status: api.OutcomeSucceeded}), api.DeploymentUnknown, "not what runs"},
		"succeeded with rubbish": {finish(api.Result{Status: api.OutcomeSucceeded, Output: json.RawMessage(`[7]`)}), api.DeploymentUnknown, "not what runs"},
		"failed":                 {finish(api.Result{Status: api.OutcomeFailed, Error: "no such image"}), api.DeploymentFailed, "no such image"},
		"failed without words":   {finish(api.Result{Status: api.OutcomeFailed}), api.DeploymentFailed, "gave no reason"},
		"rejected":               {finish(api.Result{Status: api.OutcomeRejected, Error: "too late"}), api.DeploymentFailed, "too late"},
		"superseded":             {finish(api.Result{Status: api.OutcomeSuperseded}), api.DeploymentReplaced, "newer revision"},
		"unknown":                {finish(api.Result{Status: api.OutcomeUnknown, Error: "interrupted"}), api.DeploymentUnknown, "interrupted"},
		"expired": {func(t *testing.T, a *servertest.Agent, _ string) {
			a.Clock.Move(api.CommandLife)
			if err := a.Commands.Expire(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, api.DeploymentFailed, "nothing was changed"},
		"expired at the ack": {func(t *testing.T, a *servertest.Agent, id string) {
			a.Fetch(t)
			a.Clock.Move(api.CommandLife)
			wantCode(t, "ack", a.Ack(t, id), api.CommandExpired)
		}, api.DeploymentFailed, "nothing was changed"},
		"canceled": {func(t *testing.T, a *servertest.Agent, id string) {
			if _, err := a.Commands.Cancel(t.Context(), api.CancelCommandRequest{ID: id}); err != nil {
				t.Fatal(err)
			}
		}, api.DeploymentFailed, "nothing was changed"},
		"lost": {func(t *testing.T, a *servertest.Agent, id string) {
			a.Beat(t, api.HeartbeatRequest{})
			a.Fetch(t)
			if err := a.Ack(t, id); err != nil {
				t.Fatal(err)
			}
			a.As("e2", 1, "r2").Beat(t, api.HeartbeatRequest{})
		}, api.DeploymentUnknown, "journal_lost"},
		"revoked": {func(t *testing.T, a *servertest.Agent, _ string) {
			if _, err := a.Nodes.Revoke(t.Context(), api.RevokeNodeRequest{Node: a.ID}); err != nil {
				t.Fatal(err)
			}
		}, api.DeploymentFailed, "nothing was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
				a := world(t, f)
				d := deploy(t, f)
				c.do(t, a, d.CommandID)
				is(t, f, d.ID, c.want, c.says)
				got := f.EventsOf(t, d.ID)
				if got[0] != "deployment_waiting" || got[len(got)-1] != "deployment_"+string(c.want) {
					t.Errorf("events %v", got)
				}
			})
		})
	}
}

func TestNewRevisionReplacesOlderOnes(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := world(t, f)
		one, two, three := deploy(t, f), deploy(t, f), deploy(t, f)
		if one.Revision != 1 || three.Revision != 3 {
			t.Errorf("revisions %d, %d, %d", one.Revision, two.Revision, three.Revision)
		}
		a.Run(t, one.CommandID, runs("c1"))
		a.Run(t, two.CommandID, api.Result{Status: api.OutcomeFailed, Error: "it did not start"})
		is(t, f, one.ID, api.DeploymentRunning, "") // what failed keeps the older one
		is(t, f, two.ID, api.DeploymentFailed, "did not start")
		a.Run(t, three.CommandID, runs("c3"))
		is(t, f, one.ID, api.DeploymentReplaced, "by revision 3")
		is(t, f, two.ID, api.DeploymentFailed, "did not start")
		is(t, f, three.ID, api.DeploymentRunning, "")
		if d, err := f.Apps.GetDeployment(t.Context(), api.DeploymentRequest{ID: three.ID}); err != nil || d.Instance == nil || d.Instance.ID != "c3" {
			t.Errorf("its instance is %+v, %v", d.Instance, err)
		}
		if active := a.Beat(t, api.HeartbeatRequest{Hello: &api.Hello{}}).Active; !slices.Equal(active, []string{three.ID}) {
			t.Errorf("active %v, want %s", active, three.ID)
		}
	})
}

// Results travel by themselves: an older one may come last.
func TestResultsOutOfOrder(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := world(t, f)
		one, two := deploy(t, f), deploy(t, f)
		a.Fetch(t)
		for _, d := range []api.Deployment{one, two} {
			if err := a.Ack(t, d.CommandID); err != nil {
				t.Fatal(err)
			}
		}
		a.Run(t, two.CommandID, runs("c2"))
		a.Run(t, one.CommandID, runs("c1"))
		is(t, f, two.ID, api.DeploymentRunning, "")
		is(t, f, one.ID, api.DeploymentReplaced, "by revision 2")
	})
}

// lost is a deployment of which nobody can tell, and its node's next journal.
func lost(t *testing.T, a *servertest.Agent) (api.Deployment, *servertest.Agent) {
	t.Helper()
	a.Beat(t, api.HeartbeatRequest{})
	d := deploy(t, a.Fleet)
	a.Fetch(t)
	if err := a.Ack(t, d.CommandID); err != nil {
		t.Fatal(err)
	}
	fresh := a.As("e2", 1, "r2")
	fresh.Beat(t, api.HeartbeatRequest{})
	is(t, a.Fleet, d.ID, api.DeploymentUnknown, "journal_lost")
	return d, fresh
}

func late(t *testing.T, a *servertest.Agent, d api.Deployment) {
	t.Helper()
	if state, err := a.Result(t, d.CommandID, runs("c1")); err != nil || state != api.Lost {
		t.Fatalf("the late result: %s, %v", state, err)
	}
}

func TestLateResultTellsWhatBecameOfIt(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := world(t, f)
		d, _ := lost(t, a)
		late(t, a, d)
		is(t, f, d.ID, api.DeploymentRunning, "")
	})
}

func TestLateResultOfWhatIsReplaced(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := world(t, f)
		d, fresh := lost(t, a)
		two := deploy(t, f)
		fresh.Run(t, two.CommandID, runs("c2"))
		late(t, a, d)
		is(t, f, d.ID, api.DeploymentReplaced, "by revision 2")
		is(t, f, two.ID, api.DeploymentRunning, "")
	})
}

func TestDeployWaitsForTheOutcome(t *testing.T) {
	servertest.EachBubble(t, func(t *testing.T, f *servertest.Fleet) {
		a := world(t, f)
		request := api.ChangeAppRequest{App: "web", Write: api.Write{Wait: 30}}
		start := time.Now()
		res, err := f.Apps.Deploy(t.Context(), request)
		if err != nil || res.HTTPStatus() != 202 || time.Since(start) != 30*time.Second || res.Items[0].State != api.DeploymentWaiting {
			t.Errorf("in vain: %+v, %v, after %v", res, err, time.Since(start))
		}
		go func() {
			synctest.Wait() // until the caller waits
			list, err := f.Commands.List(t.Context(), api.ListCommandsRequest{State: api.Queued})
			if err != nil {
				t.Error(err)
			}
			for _, c := range list.Items {
				a.Run(t, c.ID, runs("c"))
			}
		}()
		res, err = f.Apps.Deploy(t.Context(), request)
		if err != nil || res.HTTPStatus() != 200 || res.Items[0].State != api.DeploymentRunning {
			t.Errorf("with an outcome: %+v, %v", res, err)
		}
		// A caller that leaves gets its answer by a repeat: it must be complete.
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			cancel()
		}()
		if res, err = f.Apps.Deploy(ctx, request); err != nil || len(res.Items) != 1 {
			t.Errorf("the caller left: %+v, %v", res, err)
		}
	})
}
