package app_test

import (
	"slices"
	"testing"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/servertest"
)

func TestNodeLeaves(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := world(t, f)
		running := deploy(t, f)
		a.Run(t, running.CommandID, runs("c1"))
		taken, waiting := a.Stop(t), a.Stop(t)
		a.Fetch(t)
		if err := a.Ack(t, taken.ID); err != nil {
			t.Fatal(err)
		}

		_, err := f.Nodes.Leave(a.Context(t.Context()), api.LeaveRequest{})
		wantCode(t, "with an instance", err, api.WorkloadsRunning)
		if err != nil && !slices.Equal(api.AsError(err).Workloads, []string{running.ID}) {
			t.Errorf("it names %v, want %s", api.AsError(err).Workloads, running.ID)
		}
		if err := f.Nodes.Check(t.Context(), a.ID); err != nil {
			t.Errorf("a refused leave: %v", err)
		}

		res, err := f.Nodes.Leave(a.Context(t.Context()), api.LeaveRequest{Force: true})
		if err != nil || res.Status != api.StatusLeft {
			t.Fatalf("forced: %+v, %v", res, err)
		}
		is(t, f, running.ID, api.DeploymentFailed, "left the cluster")
		for id, want := range map[string]api.State{taken.ID: api.Lost, waiting.ID: api.Canceled} {
			if s := f.State(t, id); s.State != want || s.Reason != "node_left" {
				t.Errorf("want %s, got %s: %s", want, s.State, s.Reason)
			}
		}
		_, err = f.Nodes.Leave(a.Context(t.Context()), api.LeaveRequest{})
		wantCode(t, "once more", err, api.NodeRevoked)
		if got := f.EventsOf(t, a.ID); got[len(got)-1] != "node_left" {
			t.Errorf("events %v", got)
		}
		f.Join(t, a.Name) // it gave its name back
	})
}
