package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/internal/cli"
	urfave "github.com/urfave/cli/v2"
)

func appCommand() *urfave.Command {
	apps := list[api.ListAppsRequest, api.App]{
		usage:    "list the apps by name",
		endpoint: api.ListApps,
		request:  func(_ *operator, at api.Cursor) api.ListAppsRequest { return api.ListAppsRequest{Cursor: at} },
		head:     "APP | IMAGE | PLACE | REVISION | CHANGED",
		row: func(op *operator, a api.App) []string {
			return []string{a.Name, madeOf(a.Spec), place(a.Placement), number(a.Revision), op.ago(&a.UpdatedAt)}
		},
		none: "there are no apps; say what you want to run with: beckon app put NAME --image IMAGE --node NODE",
	}
	return &urfave.Command{
		Name:  "app",
		Usage: "apps: what you want to run, and where",
		Subcommands: []*urfave.Command{
			putAppCommand(),
			pushCommand(),
			apps.command(),
			{Name: "show", Usage: "show an app and where it runs", ArgsUsage: "APP", Action: verb(showApp)},
			changeCommand("restart", "restart the instances of an app, stopped ones too", api.RestartApp),
			changeCommand("stop", "stop the instances of an app, and keep them", api.StopApp),
			rollbackCommand(),
			historyCommand(),
			changeCommand("remove", "remove an app from its nodes, and then itself", api.DeleteApp),
		},
	}
}

func showApp(ctx context.Context, op *operator) error {
	name, err := op.subject()
	if err != nil {
		return err
	}
	res, err := call(ctx, op, api.GetApp, api.AppRequest{App: name})
	if err != nil {
		return err
	}
	return op.print(res, func() error {
		if err := op.fields(appFields(op, res.Value)...); err != nil {
			return err
		}
		return op.whereItRuns(ctx, res.Value.Name)
	})
}

func appFields(op *operator, a api.App) []field {
	all := []field{
		{"name", a.Name},
		{"id", a.ID},
		{"place", place(a.Placement)},
		{"revision", number(a.Revision)},
		{"created", op.moment(&a.CreatedAt)},
		{"changed", op.moment(&a.UpdatedAt)},
	}
	return append(all, specFields(a.Spec)...)
}

func specFields(s api.AppSpec) []field {
	restart := s.Restart
	if restart == "" {
		restart = api.RestartAlways
	}
	all := []field{
		{"image", s.Image},
	}
	if s.Archive != nil {
		all = []field{{"archive", named(s.Archive.FileID, size(s.Archive.SizeBytes))}}
	}
	all = append(all, []field{
		{"command", strings.Join(s.Command, " ")},
		{"port", number(s.Port)},
		{"publish", s.Publish},
		{"cpu limit", cores(s.Resources.CPUCores)},
		{"memory limit", limit(s.Resources.MemBytes)},
		{"restart", string(restart)},
		{"observe", cli.Plain(s.Observe().String())},
	}...)
	if len(s.Env) > 0 {
		all = append(all, field{"env", pairs(s.Env, "\n")})
	}
	return all
}

// madeOf is the image or the archive of an app.
func madeOf(s api.AppSpec) string {
	if s.Archive != nil {
		return s.Archive.FileID
	}
	return s.Image
}

// whereItRuns adds the deployments that stand, the newest first.
func (op *operator) whereItRuns(ctx context.Context, app string) error {
	request := func(at api.Cursor) api.ListDeploymentsRequest {
		return api.ListDeploymentsRequest{Cursor: at, App: app}
	}
	page, err := collect(ctx, op, api.ListDeployments, request, "", 20)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, d := range page.Items {
		if s := d.Value.State; s != api.DeploymentReplaced && s != api.DeploymentRemoved {
			rows = append(rows, deploymentRow(op, d.Value))
		}
	}
	if len(rows) == 0 {
		op.tell("it is deployed nowhere; run it with: beckon deploy %s", app)
		return nil
	}
	if err := op.say(""); err != nil {
		return err
	}
	return op.table(deploymentHead, rows)
}

// appCommands is an api.AppCommands whose items are kept as they came.
type appCommands struct {
	Items []document[api.CommandStatus] `json:"items"`
}

func changeCommand(name, usage string, e api.Endpoint[api.ChangeAppRequest, api.AppCommands]) *urfave.Command {
	kept := api.Endpoint[api.ChangeAppRequest, appCommands](e)
	return &urfave.Command{
		Name:      name,
		Usage:     usage,
		ArgsUsage: "APP",
		Flags:     waitFlags(time.Minute),
		Action: verb(func(ctx context.Context, op *operator) error {
			app, err := op.subject()
			if err != nil {
				return err
			}
			p, err := op.patience()
			if err != nil {
				return err
			}
			res, err := call(ctx, op, kept, api.ChangeAppRequest{Write: write(p.first()), App: app})
			see := "beckon command list --app " + app
			if err != nil {
				return cutOff(ctx, err, see)
			}
			return op.outcome(ctx, p, name+" of "+app, see, res.Value)
		}),
	}
}

// outcome waits for what an action on an app queued, and shows it.
func (op *operator) outcome(ctx context.Context, p patience, what, see string, queued appCommands) error {
	if err := op.awaitCommands(ctx, p, queued.Items); err != nil {
		return cli.WithHint(err, goesOn(see))
	}
	err := op.print(queued, func() error {
		if len(queued.Items) == 0 {
			return op.say("%s: nothing to do: no active node has an instance of it (what a revoked node runs is out of reach)", what)
		}
		var rows [][]string
		for _, c := range queued.Items {
			rows = append(rows, commandRow(op, c.Value))
		}
		return op.table(commandHead, rows)
	})
	if err != nil {
		return err
	}
	return op.verdict(p, what, goesOn(see), queued.Items)
}

func place(p api.Placement) string {
	if p.Node != "" {
		return "node " + p.Node
	}
	if len(p.Labels) == 0 {
		return nothing
	}
	return "nodes with " + pairs(p.Labels, ", ")
}

func limit(bytes int64) string {
	if bytes == 0 {
		return "none"
	}
	return size(bytes)
}

func cores(n float64) string {
	if n == 0 {
		return "none"
	}
	return strconv.FormatFloat(n, 'f', -1, 64) + " cores"
}
