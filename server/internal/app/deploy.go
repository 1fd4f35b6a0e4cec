package app

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/internal/fault"
	"github.com/beckon-fleet/beckon/server/internal/command"
	"github.com/beckon-fleet/beckon/server/internal/event"
	"github.com/beckon-fleet/beckon/server/internal/node"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// Deploy is api.DeployApp: one new revision, a deployment and a command for
// each node, all of it or nothing.
func (s *Service) Deploy(ctx context.Context, req api.ChangeAppRequest) (api.DeployAppResponse, error) {
	return s.rollOut(ctx, req, find)
}

// rollOut deploys what find finds.
func (s *Service) rollOut(ctx context.Context, req api.ChangeAppRequest, find func(*store.Tx, string) (api.App, error)) (res api.DeployAppResponse, err error) {
	var ids, commands []string
	err = s.Store.Update(ctx, func(tx *store.Tx) error {
		ids, commands = nil, nil // it may run twice
		a, err := find(tx, req.App)
		if err != nil {
			return err
		}
		nodes, err := place(tx, a.Placement)
		if err != nil {
			return err
		}
		err = tx.QueryRow(`UPDATE apps SET revision = revision + 1, removing = FALSE WHERE id = $1 RETURNING revision`, a.ID).Scan(&a.Revision)
		if err != nil {
			return fmt.Errorf("number revision: %w", err)
		}
		res.Revision = a.Revision
		for _, n := range nodes {
			id, cmd, err := s.deployOn(tx, a, n)
			if err != nil {
				return err
			}
			ids, commands = append(ids, id), append(commands, cmd)
		}
		return nil
	})
	if err != nil {
		return res, err
	}
	fault.At("stored")
	res.Awaited = req.Wait > 0
	if _, err := s.Commands.Await(ctx, commands, req.Wait.Duration()); err != nil {
		return res, err
	}
	res.Items, err = s.deployments(context.WithoutCancel(ctx), ids) // as Await: the answer may be kept
	return res, err
}

// place says which nodes a wish means now.
func place(tx *store.Tx, p api.Placement) ([]node.Row, error) {
	if p.Node != "" {
		n, err := node.Find(tx, p.Node)
		return []node.Row{n}, err
	}
	all, err := node.Active(tx)
	if err != nil {
		return nil, err
	}
	var fit []node.Row
	for _, n := range all {
		if n.Has(p.Labels) {
			fit = append(fit, n)
		}
	}
	if len(fit) == 0 {
		return nil, api.Errorf(api.NoNodeMatches, "no active node has all of the labels %s", p.Labels)
	}
	return fit, nil
}

func (s *Service) deployOn(tx *store.Tx, a api.App, n node.Row) (id, cmd string, err error) {
	id = tx.NewID("dep")
	cmd, err = command.Enqueue(tx, s.Commands, n, api.Deploy, api.DeployPayload{
		DeploymentID: id, AppID: a.ID, App: a.Name, Revision: a.Revision, AppSpec: a.Spec,
	})
	if err != nil {
		return "", "", err
	}
	spec, err := json.Marshal(a.Spec)
	if err != nil {
		return "", "", fmt.Errorf("encode spec: %w", err)
	}
	_, err = tx.Exec(`
		INSERT INTO deployments (id, app_id, app, node_id, revision, spec, state, command_id, created_at, updated_at, file_id)
		VALUES ($1, $2, $3, $4, $5, $6, 'waiting', $7, $8, $8, $9)`,
		id, a.ID, a.Name, n.ID, a.Revision, string(spec), cmd, tx.Now.UnixMilli(), fileOf(a.Spec))
	if err != nil {
		return "", "", fmt.Errorf("store deployment: %w", err)
	}
	return id, cmd, event.Record(tx, api.Event{
		Kind: "deployment_waiting", NodeID: n.ID, AppID: a.ID, Subject: id, Message: fmt.Sprintf("revision %d on %s", a.Revision, n.Name),
	})
}

// act queues a command of kind k for every node on which the app may be, after
// what is done first, in the same transaction; nil is nothing.
func act[P api.Payload, R any](ctx context.Context, s *Service, req api.ChangeAppRequest, k api.Kind[P, R],
	first func(*store.Tx, api.App) error, payload func(api.App) P,
) (res api.AppCommands, err error) {
	var commands []string
	err = s.Store.Update(ctx, func(tx *store.Tx) error {
		commands = nil // it may run twice
		a, err := find(tx, req.App)
		if err != nil {
			return err
		}
		if first != nil {
			if err := first(tx, a); err != nil {
				return err
			}
		}
		nodes, err := whereabouts(tx, a.ID)
		if err != nil {
			return err
		}
		for _, id := range nodes {
			n, err := node.Find(tx, id)
			if err != nil {
				return err
			}
			cmd, err := command.Enqueue(tx, s.Commands, n, k, payload(a))
			if err != nil {
				return err
			}
			commands = append(commands, cmd)
		}
		return nil
	})
	if err != nil {
		return res, err
	}
	fault.At("stored")
	res.Awaited = req.Wait > 0
	res.Items, err = s.Commands.Await(ctx, commands, req.Wait.Duration())
	return res, err
}

// whereabouts lists the active nodes on which instances of the app may be.
func whereabouts(tx *store.Tx, app string) ([]string, error) {
	rows, err := tx.Query(`
		SELECT DISTINCT d.node_id FROM deployments d JOIN nodes n ON n.id = d.node_id
		WHERE d.app_id = $1 AND n.status = 'active' AND `+mayRun+`
		ORDER BY d.node_id`, app)
	if err != nil {
		return nil, fmt.Errorf("look for the app: %w", err)
	}
	return store.Collect(rows, store.ScanText)
}

const selectDeployments = `
	SELECT d.id, d.app_id, d.app, d.node_id, n.name, d.revision, d.spec, d.state, d.message, d.command_id, d.instance, d.created_at, d.updated_at
	FROM deployments d JOIN nodes n ON n.id = d.node_id `

func scanDeployment(row store.Scanner) (d api.Deployment, err error) {
	var spec, instance string
	var created, updated int64
	err = row.Scan(&d.ID, &d.AppID, &d.App, &d.NodeID, &d.Node, &d.Revision, &spec, &d.State, &d.Message, &d.CommandID, &instance, &created, &updated)
	if err != nil {
		return d, err
	}
	d.CreatedAt, d.UpdatedAt = *store.Time(created), *store.Time(updated)
	if instance != "" {
		if err := json.Unmarshal([]byte(instance), &d.Instance); err != nil {
			return d, fmt.Errorf("read instance: %w", err)
		}
	}
	err = json.Unmarshal([]byte(spec), &d.Spec)
	return d, err
}

// GetDeployment is api.GetDeployment.
func (s *Service) GetDeployment(ctx context.Context, req api.DeploymentRequest) (d api.Deployment, err error) {
	list, err := s.deployments(ctx, []string{req.ID})
	if err != nil {
		return d, err
	}
	return list[0], nil
}

func (s *Service) deployments(ctx context.Context, ids []string) (list []api.Deployment, err error) {
	err = s.Store.View(ctx, func(tx *store.Tx) error {
		list = make([]api.Deployment, len(ids))
		for i, id := range ids {
			if list[i], err = deployment(tx, id); err != nil {
				return err
			}
			if err := s.explain(tx, &list[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return list, err
}

// explain says of an unsettled deployment whom it waits on.
func (s *Service) explain(tx *store.Tx, d *api.Deployment) error {
	if d.State.Settled() {
		return nil
	}
	waiting, err := s.Commands.Waiting(tx, d.NodeID)
	d.Message = "waiting for " + waiting
	return err
}

// ListDeployments is api.ListDeployments.
func (s *Service) ListDeployments(ctx context.Context, req api.ListDeploymentsRequest) (page api.Page[api.Deployment], err error) {
	err = s.Store.View(ctx, func(tx *store.Tx) error {
		rows, err := tx.Query(selectDeployments+`
			WHERE ($1 = '' OR d.id < $1) AND ($2 = '' OR d.app_id = $2 OR d.app = $2) AND ($3 = '' OR d.node_id = $3 OR n.name = $3)
				AND ($4 = '' OR d.state = $4)
			ORDER BY d.id DESC LIMIT $5`, req.After, req.App, req.Node, req.State, req.PageLimit()+1)
		if err != nil {
			return fmt.Errorf("list deployments: %w", err)
		}
		page, err = store.Page(rows, req.PageLimit(), scanDeployment, func(d api.Deployment) string { return d.ID })
		if err != nil {
			return err
		}
		for i := range page.Items {
			if err := s.explain(tx, &page.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return page, err
}

// Counts counts the deployments that matter now, by state.
func Counts(tx *store.Tx) (map[api.DeploymentState]int, error) {
	rows, err := tx.Query(`
		SELECT state, COUNT(*) FROM deployments WHERE state IN ('waiting', 'starting', 'running', 'stopped', 'unknown') GROUP BY state`)
	if err != nil {
		return nil, fmt.Errorf("count deployments: %w", err)
	}
	counts := map[api.DeploymentState]int{}
	_, err = store.Collect(rows, func(row store.Scanner) (state api.DeploymentState, err error) {
		var n int
		err = row.Scan(&state, &n)
		counts[state] = n
		return state, err
	})
	return counts, err
}
