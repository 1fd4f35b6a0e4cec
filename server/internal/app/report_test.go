package app_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/servertest"
)

// A hostile node's restart says nothing of others' deployments.
func TestRestartNamesAForeignDeployment(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		victim := world(t, f)
		d := deploy(t, f)
		victim.Run(t, d.CommandID, runs("c1"))
		act(t, victim, f.Apps.Stop, api.Result{Status: api.OutcomeSucceeded})
		hostile := f.Join(t, "hostile")
		c := hostile.Send(t, api.SendCommandRequest{Kind: "restart", Payload: output(api.RestartPayload{AppID: d.AppID, App: "web"})})
		hostile.Run(t, c.ID, api.Result{Status: api.OutcomeSucceeded, Output: output(api.RestartResult{
			DeploymentID: d.ID, Instance: api.RunningInstance{ID: "evil", Publish: "6.6.6.6:80"},
		})})
		is(t, f, d.ID, api.DeploymentStopped, "")
	})
}

// A deploy command that names a deployment which is not its own moves nothing.
func TestForeignDeployCommand(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := world(t, f)
		d := deploy(t, f)
		a.Run(t, d.CommandID, runs("c1"))
		hostile := f.Join(t, "hostile")
		c := hostile.Send(t, api.SendCommandRequest{Kind: "deploy", Payload: output(api.DeployPayload{
			DeploymentID: d.ID, AppID: d.AppID, App: "web", Revision: 9, AppSpec: d.Spec,
		})})
		hostile.Run(t, c.ID, api.Result{Status: api.OutcomeFailed, Error: "evil"})
		is(t, f, d.ID, api.DeploymentRunning, "")
	})
}

func TestReportCorrects(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := world(t, f)
		d := deploy(t, f)
		waiting := deploy(t, f)
		a.Run(t, d.CommandID, runs("c1"))
		report := func(state api.DeploymentState, message string, instance *api.RunningInstance) {
			t.Helper()
			_, err := f.Apps.Report(a.Context(t.Context()), api.Report{
				Deployments: []api.DeploymentReport{
					{DeploymentID: d.ID, State: state, Message: message, Instance: instance},
					{DeploymentID: waiting.ID, State: api.DeploymentFailed, Message: "its command's to say"},
				},
				Events: []api.EventReport{{Kind: "noticed", Message: message}},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		active := func() bool {
			return slices.Contains(a.Beat(t, api.HeartbeatRequest{Hello: &api.Hello{}}).Active, d.ID)
		}
		for range 2 { // the same again changes nothing
			report(api.DeploymentFailed, "exit code 1", nil)
			is(t, f, d.ID, api.DeploymentFailed, "exit code 1")
		}
		if !active() {
			t.Error("what failed after it had run may come back: it is active")
		}
		report(api.DeploymentRunning, "", &api.RunningInstance{ID: "c1", Restarts: 1})
		is(t, f, d.ID, api.DeploymentRunning, "")
		report(api.DeploymentStopped, "stopped by hand", nil)
		is(t, f, d.ID, api.DeploymentStopped, "by hand")
		report(api.DeploymentRemoved, "removed by hand", nil)
		is(t, f, d.ID, api.DeploymentRemoved, "by hand")
		report(api.DeploymentRunning, "", &api.RunningInstance{ID: "c1"})
		is(t, f, d.ID, api.DeploymentRemoved, "by hand") // what is gone stays gone
		if active() {
			t.Error("what is removed is active")
		}
		is(t, f, waiting.ID, api.DeploymentWaiting, "")
		want := []string{"waiting", "starting", "running", "failed", "running", "stopped", "removed"}
		var got []string
		for _, kind := range f.EventsOf(t, d.ID) {
			got = append(got, strings.TrimPrefix(kind, "deployment_"))
		}
		if !slices.Equal(got, want) {
			t.Errorf("want the events %v, got %v", want, got)
		}
		if n := f.Count(t, `FROM events WHERE kind = 'agent_noticed' AND node_id = $1`, a.ID); n != 6 {
			t.Errorf("%d of 6 events of the agent are kept", n)
		}
	})
}

// What failed without ever having run has nothing that could come back.
func TestReportOfWhatNeverRan(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := world(t, f)
		d := deploy(t, f)
		a.Run(t, d.CommandID, api.Result{Status: api.OutcomeFailed, Error: "no such image"})
		_, err := f.Apps.Report(a.Context(t.Context()), api.Report{Deployments: []api.DeploymentReport{{DeploymentID: d.ID, State: api.DeploymentRunning}}})
		if err != nil {
			t.Fatal(err)
		}
		is(t, f, d.ID, api.DeploymentFailed, "no such image")
	})
}

func TestReportThatNamesAForeignDeployment(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := world(t, f)
		d := deploy(t, f)
		a.Run(t, d.CommandID, runs("c1"))
		hostile := f.Join(t, "hostile")
		put(t, f, api.Placement{Node: "hostile"})
		own := deploy(t, f)
		hostile.Run(t, own.CommandID, runs("c2"))
		for _, foreign := range []string{d.ID, "dep_none", ""} {
			_, err := f.Apps.Report(hostile.Context(t.Context()), api.Report{
				Deployments: []api.DeploymentReport{
					{DeploymentID: own.ID, State: api.DeploymentStopped}, {DeploymentID: foreign, State: api.DeploymentRemoved},
				},
				Events: []api.EventReport{{Kind: "evil"}},
			})
			wantCode(t, foreign, err, api.ObjectForeign)
		}
		is(t, f, d.ID, api.DeploymentRunning, "")
		is(t, f, own.ID, api.DeploymentRunning, "") // all of the report was refused
		if n := f.Count(t, `FROM events WHERE kind = 'agent_evil'`); n != 0 {
			t.Error("its event was kept")
		}
	})
}

func TestRevokeMakesDeploymentsUnknown(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := world(t, f)
		running := deploy(t, f)
		a.Run(t, running.CommandID, runs("c1"))
		taken, waiting := deploy(t, f), deploy(t, f)
		a.Fetch(t)
		if err := a.Ack(t, taken.CommandID); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := f.Nodes.Revoke(t.Context(), api.RevokeNodeRequest{Node: a.ID}); err != nil {
				t.Fatal(err)
			}
		}
		is(t, f, running.ID, api.DeploymentUnknown, "node_revoked")
		is(t, f, taken.ID, api.DeploymentUnknown, "node_revoked")
		is(t, f, waiting.ID, api.DeploymentFailed, "nothing was changed")
		for _, d := range []api.Deployment{running, taken} {
			if got := f.EventsOf(t, d.ID); slices.Index(got, "deployment_unknown") != len(got)-1 {
				t.Errorf("events %v", got)
			}
		}
	})
}
