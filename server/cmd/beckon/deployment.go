package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/beckon-fleet/beckon/api"
	urfave "github.com/urfave/cli/v2"
)

func deploymentCommand() *urfave.Command {
	deployments := list[api.ListDeploymentsRequest, api.Deployment]{
		usage: "list the deployments, the newest first",
		flags: []urfave.Flag{
			&urfave.StringFlag{Name: "app", Usage: "only of `APP`"},
			&urfave.StringFlag{Name: "node", Usage: "only on `NODE`"},
			&urfave.StringFlag{Name: "state", Usage: "only those that are `STATE`, as running or failed"},
		},
		endpoint: api.ListDeployments,
		request: func(op *operator, at api.Cursor) api.ListDeploymentsRequest {
			return api.ListDeploymentsRequest{Cursor: at, App: op.String("app"), Node: op.String("node"), State: api.DeploymentState(op.String("state"))}
		},
		head: deploymentHead,
		row:  deploymentRow,
		none: "there are no deployments; make one with: beckon deploy APP",
	}
	return &urfave.Command{
		Name:  "deployment",
		Usage: "deployments: revisions of apps on nodes",
		Subcommands: []*urfave.Command{
			deployments.command(),
			{Name: "show", Usage: "show all that is known of a deployment", ArgsUsage: "ID", Action: verb(showDeployment)},
		},
	}
}

func showDeployment(ctx context.Context, op *operator) error {
	id, err := op.subject()
	if err != nil {
		return err
	}
	res, err := call(ctx, op, api.GetDeployment, api.DeploymentRequest{ID: id})
	if err != nil {
		return err
	}
	return op.print(res, func() error { return op.fields(deploymentFields(op, res.Value)...) })
}

const deploymentHead = "DEPLOYMENT | APP | REVISION | NODE | STATE | ADDRESS | SINCE | MESSAGE"

func deploymentRow(op *operator, d api.Deployment) []string {
	return []string{
		d.ID, cmp.Or(d.App, d.AppID), number(d.Revision), cmp.Or(d.Node, d.NodeID), string(d.State),
		address(d), op.ago(&d.UpdatedAt), brief(d.Message, 50),
	}
}

// address is where a running instance answers on its node.
func address(d api.Deployment) string {
	if d.State != api.DeploymentRunning || d.Instance == nil {
		return nothing
	}
	return d.Instance.Publish
}

func deploymentFields(op *operator, d api.Deployment) []field {
	all := []field{
		{"id", d.ID},
		{"app", named(d.App, d.AppID)},
		{"revision", number(d.Revision)},
		{"node", named(d.Node, d.NodeID)},
		{"state", string(d.State)},
		{"command", d.CommandID},
		{"created", op.moment(&d.CreatedAt)},
		{"changed", op.moment(&d.UpdatedAt)},
	}
	if i := d.Instance; i != nil {
		all = append(all,
			field{"instance", named(i.Name, i.ID)},
			field{"runtime", string(i.Runtime)},
			field{"address", i.Publish},
			field{"image id", i.Image},
			field{"restarts", fmt.Sprint(i.Restarts)},
			field{"started", op.moment(i.StartedAt)},
		)
	}
	all = append(all, specFields(d.Spec)...)
	return append(all, field{"message", d.Message})
}
