package main

import (
	"context"
	"slices"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/internal/cli"
	urfave "github.com/urfave/cli/v2"
)

func rollbackCommand() *urfave.Command {
	return &urfave.Command{
		Name:  "rollback",
		Usage: "go back to what an app was in an earlier revision, as a new revision",
		Description: "It goes back to the newest revision before the app's that has run, unless --revision names\n" +
			"one, and waits as `beckon deploy` does. Where the app runs is not changed. Two in a row are\n" +
			"back where they began.",
		ArgsUsage: "APP",
		Flags:     append(waitFlags(2*time.Minute), &urfave.Int64Flag{Name: "revision", Usage: "go back to revision `N`; `beckon app history` shows them"}),
		Action:    verb(rollback),
	}
}

func rollback(ctx context.Context, op *operator) error {
	revision := op.Int64("revision")
	if op.IsSet("revision") && revision < 1 {
		return cli.Usagef("--revision: %d is not above 0", revision)
	}
	return rollOut(ctx, op, func(w api.Write, app string) (document[rollout], error) {
		e := api.Endpoint[api.RollbackAppRequest, rollout](api.RollbackApp)
		return call(ctx, op, e, api.RollbackAppRequest{Write: w, App: app, Revision: revision})
	})
}

func historyCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "history",
		Usage:     "list the revisions of an app, the newest first",
		ArgsUsage: "APP",
		Flags:     []urfave.Flag{&urfave.IntFlag{Name: "limit", Value: 100, Usage: "look at most at the newest `N` deployments"}},
		Action:    verb(history),
	}
}

// revision is what its deployments have in common.
type revision struct {
	api.Deployment
	states map[api.DeploymentState]int
}

func history(ctx context.Context, op *operator) error {
	app, err := op.subject()
	if err != nil {
		return err
	}
	limit, err := op.limit()
	if err != nil {
		return err
	}
	if _, err := call(ctx, op, api.GetApp, api.AppRequest{App: app}); err != nil {
		return err
	}
	request := func(at api.Cursor) api.ListDeploymentsRequest {
		return api.ListDeploymentsRequest{Cursor: at, App: app}
	}
	page, err := collect(ctx, op, api.ListDeployments, request, "", limit)
	if err != nil {
		return err
	}
	return op.print(page, func() error {
		var rows [][]string
		for _, r := range revisions(page.Items) {
			rows = append(rows, []string{number(r.Revision), madeOf(r.Spec), counts(r.states), op.ago(&r.CreatedAt)})
		}
		if len(rows) == 0 {
			op.tell("%s was never deployed; run it with: beckon deploy %[1]s", app)
			return nil
		}
		return op.table("REVISION | MADE OF | DEPLOYMENTS | DEPLOYED", rows)
	})
}

// revisions are the deployments by revision, in their order.
func revisions(deployments []document[api.Deployment]) (all []revision) {
	for _, d := range deployments {
		i := slices.IndexFunc(all, func(r revision) bool { return r.Revision == d.Value.Revision && r.AppID == d.Value.AppID })
		if i < 0 {
			i, all = len(all), append(all, revision{d.Value, map[api.DeploymentState]int{}})
		}
		all[i].states[d.Value.State]++
	}
	return all
}
