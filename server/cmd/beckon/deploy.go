package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/internal/cli"
	urfave "github.com/urfave/cli/v2"
)

func deployCommand() *urfave.Command {
	return &urfave.Command{
		Name:  "deploy",
		Usage: "run an app as it is wished now, as a new revision on each of its nodes",
		Description: "It waits until the new revision runs on all of them: then, and only then, the exit code\n" +
			"is 0. One that fails says why, and the revision before it keeps its place. When the time\n" +
			"is up (8), the deployment goes on without you.",
		ArgsUsage: "APP",
		Flags:     waitFlags(2 * time.Minute),
		Action:    verb(deploy),
	}
}

// rollout is a new revision on its way: an api.DeployAppResponse whose items
// are kept as they came.
type rollout struct {
	Revision int64                      `json:"revision"`
	Items    []document[api.Deployment] `json:"items"`
}

func deploy(ctx context.Context, op *operator) error {
	return rollOut(ctx, op, func(w api.Write, app string) (document[rollout], error) {
		e := api.Endpoint[api.ChangeAppRequest, rollout](api.DeployApp)
		return call(ctx, op, e, api.ChangeAppRequest{Write: w, App: app})
	})
}

// rollOut makes a new revision by begin, waits for it and says how it went.
func rollOut(ctx context.Context, op *operator, begin func(w api.Write, app string) (document[rollout], error)) error {
	app, err := op.subject()
	if err != nil {
		return err
	}
	p, err := op.patience()
	if err != nil {
		return err
	}
	res, err := begin(write(p.first()), app)
	see := "beckon deployment list --app " + app
	if err != nil {
		return cutOff(ctx, err, see)
	}
	r := res.Value
	if p.timeout > 0 && !r.settled() {
		op.tell("%s: revision %d", app, r.Revision)
		r.show(ctx, op)
		_, err = op.await(ctx, p, func(ctx context.Context) (bool, error) { return r.look(ctx, op, app) })
	}
	if err != nil {
		return cli.WithHint(err, goesOn(see))
	}
	if err := op.print(r, func() error { return r.table(op) }); err != nil {
		return err
	}
	return r.verdict(op, p, app, goesOn(see))
}

func (r *rollout) settled() bool {
	for _, d := range r.Items {
		if !d.Value.State.Settled() {
			return false
		}
	}
	return true
}

// look brings the open deployments up to date.
func (r *rollout) look(ctx context.Context, op *operator, app string) (bool, error) {
	request := func(at api.Cursor) api.ListDeploymentsRequest {
		return api.ListDeploymentsRequest{Cursor: at, App: app}
	}
	page, err := collect(ctx, op, api.ListDeployments, request, "", len(r.Items))
	if err != nil {
		return false, err
	}
	now := map[string]document[api.Deployment]{}
	for _, d := range page.Items {
		now[d.Value.ID] = d
	}
	for i, d := range r.Items {
		if d.Value.State.Settled() {
			continue
		}
		next, ok := now[d.Value.ID]
		if !ok { // a newer revision came between
			if next, err = call(ctx, op, api.GetDeployment, api.DeploymentRequest{ID: d.Value.ID}); err != nil {
				return false, err
			}
		}
		r.Items[i] = next
	}
	r.show(ctx, op)
	return r.settled(), nil
}

// mostAsked bounds how many nodes are asked after in one look.
const mostAsked = 10

// show says what has changed, and which nodes keep it waiting.
func (r *rollout) show(ctx context.Context, op *operator) {
	asked := 0
	for _, d := range r.Items {
		switch s := d.Value.State; {
		case s == api.DeploymentRunning:
			op.progress(nodeName(d.Value), string(s), strings.TrimSuffix("running at "+address(d.Value), " at "))
		case s.Settled():
			standing(op, d.Value)
		case asked < mostAsked && !op.json:
			asked++
			key, absence := op.absence(ctx, d.Value.NodeID)
			op.progress(nodeName(d.Value), string(s)+key, string(s)+absence)
		}
	}
}

// standing says that a deployment does not run, and why.
func standing(op *operator, d api.Deployment) {
	op.progress(nodeName(d), string(d.State), string(d.State)+because(d.Message))
}

// absence says that a node is not there. Not being told costs a word of
// comfort, nothing else.
func (op *operator) absence(ctx context.Context, id string) (key, text string) {
	n, err := call(ctx, op, api.GetNode, api.NodeRequest{Node: id})
	switch presence := n.Value.Presence; {
	case err != nil || presence == api.Online:
		return "", ""
	case presence == api.PresenceUnknown:
		return string(presence), "; whether the node is there is not known yet"
	default:
		return string(presence), fmt.Sprintf("; the node is %s, seen %s", presence, op.ago(n.Value.LastSeenAt))
	}
}

func (r *rollout) table(op *operator) error {
	var rows [][]string
	for _, d := range r.Items {
		rows = append(rows, []string{nodeName(d.Value), string(d.Value.State), number(r.Revision), address(d.Value), d.Value.ID})
	}
	return op.table("NODE | STATE | REVISION | ADDRESS | DEPLOYMENT", rows)
}

// verdict is the error that the rollout amounts to: one that failed weighs more
// than one that is still open.
func (r *rollout) verdict(op *operator, p patience, app, hint string) error {
	var bad, open []string
	for _, d := range r.Items {
		switch s := d.Value.State; {
		case !s.Settled():
			open = append(open, fmt.Sprintf("%s (%s)", nodeName(d.Value), s))
		case s != api.DeploymentRunning:
			standing(op, d.Value)
			bad = append(bad, fmt.Sprintf("%s (%s)", nodeName(d.Value), s))
		}
	}
	switch {
	case len(bad) > 0:
		return cli.Failedf("revision %d of %s does not run on %s", r.Revision, app, strings.Join(bad, ", "))
	case len(open) > 0 && p.timeout > 0:
		return cli.WithHint(cli.TimedOutf("after %s, revision %d of %s is still on its way to %s",
			cli.Plain(p.timeout.String()), r.Revision, app, strings.Join(open, ", ")), hint)
	}
	return nil
}

func nodeName(d api.Deployment) string { return cmp.Or(d.Node, d.NodeID) }
