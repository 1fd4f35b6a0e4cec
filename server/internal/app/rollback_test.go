package app_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/servertest"
)

// reach deploys an image and says what became of it.
func reach(t *testing.T, f *servertest.Fleet, a *servertest.Agent, image string, r api.Result) api.Deployment {
	t.Helper()
	_, err := f.Apps.Put(t.Context(), api.PutAppRequest{App: "web", AppSpec: api.AppSpec{Image: image}, Placement: api.Placement{Node: "node-1"}})
	if err != nil {
		t.Fatal(err)
	}
	d := deploy(t, f)
	a.Run(t, d.CommandID, r)
	return d
}

func back(f *servertest.Fleet, t *testing.T, revision int64) (api.DeployAppResponse, error) {
	return f.Apps.Rollback(t.Context(), api.RollbackAppRequest{App: "web", Revision: revision})
}

func TestRollback(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := world(t, f)
		_, err := back(f, t, 0)
		wantCode(t, "never deployed", err, api.NoEarlierRevision)
		reach(t, f, a, "web:1", runs("c1"))
		_, err = back(f, t, 0)
		wantCode(t, "nothing before the first", err, api.NoEarlierRevision)
		reach(t, f, a, "web:2", runs("c2"))
		reach(t, f, a, "web:3", api.Result{Status: api.OutcomeFailed, Error: "no"})
		for i, c := range []struct {
			revision int64
			image    string
		}{{0, "web:2"}, {0, "web:2"}, {1, "web:1"}, {0, "web:2"}} {
			res, err := back(f, t, c.revision)
			if err != nil || len(res.Items) != 1 || res.Revision != int64(4+i) || res.Items[0].Spec.Image != c.image {
				t.Fatalf("rollback %d to %d: %+v, %v", i, c.revision, res, err)
			}
			now, err := f.Apps.Get(t.Context(), api.AppRequest{App: "web"})
			if err != nil || now.Spec.Image != c.image || now.Revision != res.Revision {
				t.Errorf("rollback %d: the app is %+v, %v", i, now, err)
			}
			if i != 0 { // the first never starts, and is nothing to go back to
				a.Run(t, res.Items[0].CommandID, runs(fmt.Sprint("c", 4+i)))
			}
		}
		for _, revision := range []int64{3, 4, 99} {
			_, err = back(f, t, revision)
			wantCode(t, fmt.Sprint("revision ", revision), err, api.NoEarlierRevision)
			if !strings.Contains(err.Error(), fmt.Sprintf("revision %d of web has never run", revision)) {
				t.Errorf("it says %v", err)
			}
		}
		_, err = f.Apps.Rollback(t.Context(), api.RollbackAppRequest{App: "nowhere"})
		wantCode(t, "no app", err, api.NotFound)
		events, err := f.Events.List(t.Context(), api.ListEventsRequest{App: "web"})
		n := 0
		for _, e := range events.Items {
			if e.Kind == "app_rolled_back" {
				n++
			}
		}
		if err != nil || n != 4 {
			t.Errorf("%d events, %v", n, err)
		}
	})
}

// A deploy that cannot be placed changes nothing, the app neither.
func TestRollbackIsWholeOrNothing(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := world(t, f)
		reach(t, f, a, "web:1", runs("c1"))
		reach(t, f, a, "web:2", runs("c2"))
		if _, err := f.Nodes.Revoke(t.Context(), api.RevokeNodeRequest{Node: a.ID}); err != nil {
			t.Fatal(err)
		}
		_, err := back(f, t, 0)
		wantCode(t, "a node that is out", err, api.NodeInactive)
		now, err := f.Apps.Get(t.Context(), api.AppRequest{App: "web"})
		if err != nil || now.Spec.Image != "web:2" || now.Revision != 2 {
			t.Errorf("the app is %+v, %v", now, err)
		}
	})
}

func TestRollbackNeedsItsFile(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "node-1")
		file, err := f.Files.Put(t.Context(), strings.NewReader("one"), "")
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Apps.Put(t.Context(), api.PutAppRequest{
			App: "web", AppSpec: api.AppSpec{Archive: &api.Archive{FileID: file.ID}, Command: []string{"x"}}, Placement: api.Placement{Node: "node-1"},
		})
		if err != nil {
			t.Fatal(err)
		}
		a.Run(t, deploy(t, f).CommandID, runs("c1"))
		reach(t, f, a, "web:2", runs("c2"))
		res, err := back(f, t, 0)
		if err != nil || res.Items[0].Spec.Archive.SHA256 != file.SHA256 {
			t.Fatalf("back to an archive: %+v, %v", res, err)
		}
		a.Run(t, res.Items[0].CommandID, runs("c3"))
		for n := range api.KeptRevisions + 1 {
			reach(t, f, a, "web:3", runs(fmt.Sprint("d", n)))
		}
		if _, err := f.Files.Delete(t.Context(), api.DeleteFileRequest{ID: file.ID}); err != nil {
			t.Fatal(err)
		}
		_, err = back(f, t, 1)
		wantCode(t, "its file is gone", err, api.FileMissing)
		if kinds := f.EventsOf(t, file.ID); !slices.Contains(kinds, "file_removed") {
			t.Errorf("events %v", kinds)
		}
	})
}
