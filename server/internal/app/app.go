// Package app is what operators want to run, and its deployments on nodes.
package app

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/command"
	"github.com/beckon-fleet/beckon/server/internal/event"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// Service is the apps.
type Service struct {
	Store    *store.Store
	Commands *command.Service
}

const selectApps = `SELECT id, name, spec, placement, revision, created_at, updated_at FROM apps `

func scanApp(row store.Scanner) (a api.App, err error) {
	var spec, placement string
	var created, updated int64
	if err := row.Scan(&a.ID, &a.Name, &spec, &placement, &a.Revision, &created, &updated); err != nil {
		return a, err
	}
	a.CreatedAt, a.UpdatedAt = *store.Time(created), *store.Time(updated)
	if err := json.Unmarshal([]byte(spec), &a.Spec); err != nil {
		return a, fmt.Errorf("read spec: %w", err)
	}
	err = json.Unmarshal([]byte(placement), &a.Placement)
	return a, err
}

// find resolves an id or a name.
func find(tx *store.Tx, ref string) (api.App, error) {
	a, err := scanApp(tx.QueryRow(selectApps+`WHERE id = $1 OR name = $1`, ref))
	if errors.Is(err, sql.ErrNoRows) {
		return a, api.Errorf(api.NotFound, "there is no app %q; make it with `beckon app put`", ref)
	}
	if err != nil {
		return a, fmt.Errorf("find app: %w", err)
	}
	return a, nil
}

// Put is api.PutApp. What was being removed is wanted again.
func (s *Service) Put(ctx context.Context, req api.PutAppRequest) (res api.PutAppResponse, err error) {
	placement, err := json.Marshal(req.Placement)
	if err != nil {
		return res, fmt.Errorf("encode placement: %w", err)
	}
	err = s.Store.Update(ctx, func(tx *store.Tx) error {
		spec, err := resolve(tx, req.AppSpec)
		if err != nil {
			return err
		}
		text, err := json.Marshal(spec)
		if err != nil {
			return fmt.Errorf("encode spec: %w", err)
		}
		id := tx.NewID("app")
		_, err = tx.Exec(`
			INSERT INTO apps (id, name, spec, placement, created_at, updated_at, file_id) VALUES ($1, $2, $3, $4, $5, $5, $6)
			ON CONFLICT (name) DO UPDATE SET spec = $3, placement = $4, updated_at = $5, file_id = $6, removing = FALSE`,
			id, req.App, string(text), string(placement), tx.Now.UnixMilli(), fileOf(spec))
		if err != nil {
			return fmt.Errorf("store app: %w", err)
		}
		if res.App, err = find(tx, req.App); err != nil {
			return err
		}
		res.Created = res.ID == id
		return event.Record(tx, api.Event{Kind: "app_stored", AppID: res.ID, Message: req.App})
	})
	return res, err
}

// Get is api.GetApp.
func (s *Service) Get(ctx context.Context, req api.AppRequest) (a api.App, err error) {
	err = s.Store.View(ctx, func(tx *store.Tx) error {
		a, err = find(tx, req.App)
		return err
	})
	return a, err
}

// List is api.ListApps.
func (s *Service) List(ctx context.Context, req api.ListAppsRequest) (page api.Page[api.App], err error) {
	err = s.Store.View(ctx, func(tx *store.Tx) error {
		rows, err := tx.Query(selectApps+`WHERE name > $1 ORDER BY name LIMIT $2`, req.After, req.PageLimit()+1)
		if err != nil {
			return fmt.Errorf("list apps: %w", err)
		}
		page, err = store.Page(rows, req.PageLimit(), scanApp, func(a api.App) string { return a.Name })
		return err
	})
	return page, err
}

// Restart is api.RestartApp.
func (s *Service) Restart(ctx context.Context, req api.ChangeAppRequest) (api.AppCommands, error) {
	return act(ctx, s, req, api.Restart, nil, func(a api.App) api.RestartPayload {
		return api.RestartPayload{AppID: a.ID, App: a.Name}
	})
}

// Stop is api.StopApp.
func (s *Service) Stop(ctx context.Context, req api.ChangeAppRequest) (api.AppCommands, error) {
	return act(ctx, s, req, api.Stop, nil, func(a api.App) api.StopPayload {
		return api.StopPayload{AppID: a.ID, App: a.Name}
	})
}

// Delete is api.DeleteApp. An app that is nowhere goes at once.
func (s *Service) Delete(ctx context.Context, req api.ChangeAppRequest) (api.AppCommands, error) {
	mark := func(tx *store.Tx, a api.App) error {
		if _, err := tx.Exec(`UPDATE apps SET removing = TRUE WHERE id = $1`, a.ID); err != nil {
			return fmt.Errorf("mark app: %w", err)
		}
		return dropRemoved(tx, a.ID)
	}
	return act(ctx, s, req, api.Remove, mark, func(a api.App) api.RemovePayload {
		return api.RemovePayload{AppID: a.ID, App: a.Name}
	})
}
