package app

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/auth"
	"github.com/beckon-fleet/beckon/server/internal/command"
	"github.com/beckon-fleet/beckon/server/internal/event"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// Follow has the deployments follow the commands that are about them.
func (s *Service) Follow() {
	s.Commands.On(api.Deploy, s.followDeploy)
	s.Commands.On(api.Restart, s.followRestart)
	s.Commands.On(api.Stop, s.followStop)
	s.Commands.On(api.Remove, s.followRemove)
}

func deployment(tx *store.Tx, id string) (api.Deployment, error) {
	d, err := scanDeployment(tx.QueryRow(selectDeployments+`WHERE d.id = $1`, id))
	if errors.Is(err, sql.ErrNoRows) {
		return d, api.Errorf(api.NotFound, "there is no deployment %q", id)
	}
	if err != nil {
		return d, fmt.Errorf("read deployment: %w", err)
	}
	return d, nil
}

// followDeploy says what the state of a deploy command means for its
// deployment. A command sent by hand may name none.
func (s *Service) followDeploy(tx *store.Tx, c command.Command, to api.State, result *api.Result) error {
	var payload api.DeployPayload
	if err := json.Unmarshal([]byte(c.Payload), &payload); err != nil {
		return fmt.Errorf("read deploy: %w", err)
	}
	d, err := deployment(tx, payload.DeploymentID)
	if errors.Is(err, api.NotFound) || err == nil && d.CommandID != c.ID {
		return nil
	}
	if err != nil {
		return err
	}
	if c.State.Ended() && d.State != api.DeploymentUnknown {
		return nil // a late result of what has been settled otherwise
	}
	switch to {
	case api.Acked:
		return s.set(tx, d, api.DeploymentStarting, "", nil)
	case api.Succeeded:
		return s.deployed(tx, d, result)
	case api.Expired:
		return s.set(tx, d, api.DeploymentFailed, undelivered(c), nil)
	case api.Canceled:
		return s.set(tx, d, api.DeploymentFailed, "canceled before the node took it; nothing was changed", nil)
	case api.Superseded:
		return s.set(tx, d, api.DeploymentReplaced, "a newer revision came before this one started", nil)
	case api.Failed, api.Rejected:
		return s.set(tx, d, api.DeploymentFailed, messageOf(result, "the node gave no reason"), nil)
	case api.Lost:
		return s.set(tx, d, api.DeploymentUnknown, messageOf(result, "nobody can tell what became of it: "+c.Reason), nil)
	}
	return nil
}

func undelivered(c command.Command) string {
	if c.DeliveredAt == 0 {
		return "not delivered: the node did not ask for it in time; nothing was changed"
	}
	return "delivered, but the node did not take it in time; nothing was changed"
}

func messageOf(r *api.Result, otherwise string) string {
	if r == nil || r.Error == "" {
		return otherwise
	}
	return r.Error
}

// deployed makes d the one that runs, and the older ones on its node replaced;
// or d itself, when the result of a newer one was faster.
func (s *Service) deployed(tx *store.Tx, d api.Deployment, r *api.Result) error {
	var res api.DeployResult
	if err := json.Unmarshal(r.Output, &res); err != nil || res.Instance.ID == "" {
		return s.set(tx, d, api.DeploymentUnknown, "the node says it succeeded, but not what runs", nil)
	}
	newer := int64(0)
	err := s.each(tx, d.AppID, d.NodeID, func(other api.Deployment) error {
		switch {
		case other.ID == d.ID:
			return nil
		case other.Revision < d.Revision:
			return s.set(tx, other, api.DeploymentReplaced, fmt.Sprintf("by revision %d", d.Revision), nil)
		case other.State == api.DeploymentRunning || other.State == api.DeploymentStopped:
			newer = other.Revision
		}
		return nil
	})
	if err != nil {
		return err
	}
	if newer > 0 {
		return s.set(tx, d, api.DeploymentReplaced, fmt.Sprintf("by revision %d", newer), nil)
	}
	return s.set(tx, d, api.DeploymentRunning, "", &res.Instance)
}

// each does do for every deployment of the app that may have an instance on
// the node.
func (s *Service) each(tx *store.Tx, app, nodeID string, do func(api.Deployment) error) error {
	rows, err := tx.Query(selectDeployments+`
		WHERE d.app_id = $1 AND d.node_id = $2 AND `+isPresent+` ORDER BY d.id`, app, nodeID)
	if err != nil {
		return fmt.Errorf("list deployments: %w", err)
	}
	list, err := store.Collect(rows, scanDeployment)
	if err != nil {
		return err
	}
	for _, d := range list {
		if err := do(d); err != nil {
			return err
		}
	}
	return nil
}

// followRestart believes a node of its own deployments only.
func (s *Service) followRestart(tx *store.Tx, c command.Command, to api.State, result *api.Result) error {
	if to != api.Succeeded {
		return nil
	}
	var res api.RestartResult
	if json.Unmarshal(result.Output, &res) != nil {
		return nil
	}
	d, err := deployment(tx, res.DeploymentID)
	if err != nil {
		return ignoreMissing(err)
	}
	if d.NodeID != c.NodeID || d.AppID != c.AppID || !present(d) {
		return nil
	}
	return s.set(tx, d, api.DeploymentRunning, "", &res.Instance)
}

func (s *Service) followStop(tx *store.Tx, c command.Command, to api.State, _ *api.Result) error {
	if to != api.Succeeded {
		return nil
	}
	return s.each(tx, c.AppID, c.NodeID, func(d api.Deployment) error {
		if wantedAfter(d, c) {
			return nil
		}
		return s.set(tx, d, api.DeploymentStopped, "stopped by an operator", d.Instance)
	})
}

func (s *Service) followRemove(tx *store.Tx, c command.Command, to api.State, _ *api.Result) error {
	if to != api.Succeeded {
		return nil
	}
	return s.each(tx, c.AppID, c.NodeID, func(d api.Deployment) error {
		if wantedAfter(d, c) {
			return nil
		}
		return s.set(tx, d, api.DeploymentRemoved, "", nil)
	})
}

// wantedAfter reports whether d was asked for after c: a result that comes late
// says nothing of it.
func wantedAfter(d api.Deployment, c command.Command) bool {
	return d.CreatedAt.UnixMilli() > c.CreatedAt
}

func ignoreMissing(err error) error {
	if errors.Is(err, api.NotFound) {
		return nil
	}
	return err
}

// set writes a deployment's state, with one event, unless it is so already.
func (s *Service) set(tx *store.Tx, d api.Deployment, to api.DeploymentState, message string, instance *api.RunningInstance) error {
	text := ""
	if instance != nil {
		encoded, err := json.Marshal(instance)
		if err != nil {
			return fmt.Errorf("encode instance: %w", err)
		}
		text = string(encoded)
	}
	_, err := tx.Exec(`UPDATE deployments SET state = $2, message = $3, instance = $4, ran = ran OR $6,
			updated_at = CASE WHEN state = $2 THEN updated_at ELSE $5 END WHERE id = $1`,
		d.ID, to, message, text, tx.Now.UnixMilli(), to == api.DeploymentRunning)
	if err != nil {
		return fmt.Errorf("set deployment %s: %w", to, err)
	}
	if d.State == to {
		return nil
	}
	err = event.Record(tx, api.Event{Kind: "deployment_" + string(to), NodeID: d.NodeID, AppID: d.AppID, Subject: d.ID, Message: message})
	if err != nil || !to.Settled() {
		return err
	}
	return dropRemoved(tx, d.AppID) // it may have been the last thing in the way
}

// dropRemoved deletes an app that is to go once it is nowhere any more. Its
// deployments stay as history.
func dropRemoved(tx *store.Tx, id string) error {
	gone, err := tx.Changed(`
		DELETE FROM apps WHERE id = $1 AND removing AND NOT EXISTS (
			SELECT 1 FROM deployments d JOIN nodes n ON n.id = d.node_id
			WHERE d.app_id = $1 AND n.status = 'active' AND `+mayRun+`)`, id)
	if err != nil {
		return fmt.Errorf("drop app: %w", err)
	}
	if !gone {
		return nil
	}
	return event.Record(tx, api.Event{Kind: "app_removed", AppID: id})
}

// Report is api.PostReport: what really runs corrects what was believed.
func (s *Service) Report(ctx context.Context, req api.Report) (res api.ReportResponse, err error) {
	caller := auth.From(ctx)
	err = s.Store.Update(ctx, func(tx *store.Tx) error {
		for _, r := range req.Deployments {
			d, err := deployment(tx, r.DeploymentID)
			if errors.Is(err, api.NotFound) || err == nil && d.NodeID != caller.Node {
				return api.Errorf(api.ObjectForeign, "deployment %q is not one of this node's", r.DeploymentID)
			}
			if err != nil {
				return err
			}
			if err := s.correct(tx, d, r); err != nil {
				return err
			}
		}
		for _, e := range req.Events {
			err := event.Record(tx, api.Event{Kind: "agent_" + e.Kind, NodeID: caller.Node, Message: e.Message})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return res, err
}

// correct believes the node of what has an instance. A deploy that is still
// under way is its command's to end, and what never ran stays as it is.
func (s *Service) correct(tx *store.Tx, d api.Deployment, r api.DeploymentReport) error {
	if !present(d) {
		return nil
	}
	instance := r.Instance
	if instance == nil && r.State != api.DeploymentRemoved {
		instance = d.Instance
	}
	return s.set(tx, d, r.State, r.Message, instance)
}

// mayRun is a deployment that is under way or may have an instance.
const mayRun = `(d.state IN ('waiting', 'starting') OR ` + isPresent + `)`

// isPresent is present in SQL.
const isPresent = `(d.state IN ('running', 'stopped', 'unknown') OR d.state = 'failed' AND d.instance <> '')`

// present reports whether d has, or may have, an instance on its node. One that
// failed after it had run still has: it may come back.
func present(d api.Deployment) bool {
	switch d.State {
	case api.DeploymentRunning, api.DeploymentStopped, api.DeploymentUnknown:
		return true
	}
	return d.State == api.DeploymentFailed && d.Instance != nil
}

// Active lists the ids of a node's deployments that have an instance, as far
// as is known.
func Active(tx *store.Tx, nodeID string) ([]string, error) {
	rows, err := tx.Query(`SELECT d.id FROM deployments d WHERE d.node_id = $1 AND `+isPresent+` ORDER BY d.id`, nodeID)
	if err != nil {
		return nil, fmt.Errorf("list active deployments: %w", err)
	}
	return store.Collect(rows, store.ScanText)
}

// Running lists the ids of a node's deployments that have an instance or are
// under way.
func Running(tx *store.Tx, nodeID string) ([]string, error) {
	rows, err := tx.Query(`SELECT d.id FROM deployments d WHERE d.node_id = $1 AND `+mayRun+` ORDER BY d.id`, nodeID)
	if err != nil {
		return nil, fmt.Errorf("list running deployments: %w", err)
	}
	return store.Collect(rows, store.ScanText)
}

// Left ends the deployments of a node that is shut out. Of one that was revoked
// nobody will hear again, so they are unknown; one that left took them with it.
// Those under way were ended by their commands.
func (s *Service) Left(tx *store.Tx, nodeID, reason string) error {
	rows, err := tx.Query(selectDeployments+`WHERE d.node_id = $1 AND `+isPresent, nodeID)
	if err != nil {
		return fmt.Errorf("list deployments: %w", err)
	}
	list, err := store.Collect(rows, scanDeployment)
	if err != nil {
		return err
	}
	for _, d := range list {
		if reason == "node_left" {
			err = s.set(tx, d, api.DeploymentFailed, "the node left the cluster", nil)
		} else {
			err = s.set(tx, d, api.DeploymentUnknown, "nobody can tell any more: "+reason, d.Instance)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
