// Package event keeps what happened, for people and for scripts that watch.
package event

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// Record keeps e in the caller's transaction: an event and what it tells of
// stand or fall together. ID and At are made here.
func Record(tx *store.Tx, e api.Event) error {
	_, err := tx.Exec(`
		INSERT INTO events (id, at, kind, node_id, app_id, subject, message) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		tx.NewID("evt"), tx.Now.UnixMilli(), e.Kind, e.NodeID, e.AppID, e.Subject, e.Message)
	if err != nil {
		return fmt.Errorf("record event: %w", err)
	}
	return nil
}

// Service answers operators.
type Service struct {
	Store    *store.Store
	Stopping <-chan struct{} // closed when streams are to end
	Log      *slog.Logger
}

// List is api.ListEvents. Node and app are ids or names.
func (s *Service) List(ctx context.Context, req api.ListEventsRequest) (page api.Page[api.Event], err error) {
	err = s.Store.View(ctx, func(tx *store.Tx) error {
		direction, order := ">", "ASC"
		if req.Newest {
			direction, order = "<", "DESC"
		}
		rows, err := tx.Query(`
			SELECT e.id, e.at, e.kind, e.node_id, e.app_id, e.subject, e.message FROM events e
			LEFT JOIN nodes n ON n.id = e.node_id
			LEFT JOIN apps a ON a.id = e.app_id
			WHERE ($1 = '' OR e.id `+direction+` $1) AND ($2 = '' OR e.node_id = $2 OR n.name = $2) AND ($3 = '' OR e.app_id = $3 OR a.name = $3)
				AND ($4 = '' OR e.subject = $4) AND e.at >= $6
			ORDER BY e.id `+order+` LIMIT $5`, req.After, req.Node, req.App, req.Subject, req.PageLimit()+1, since(req.Since))
		if err != nil {
			return fmt.Errorf("list events: %w", err)
		}
		page, err = store.Page(rows, req.PageLimit(), scan, func(e api.Event) string { return e.ID })
		return err
	})
	return page, err
}

// since is the first moment that is asked for.
func since(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func scan(row store.Scanner) (e api.Event, err error) {
	var at int64
	err = row.Scan(&e.ID, &at, &e.Kind, &e.NodeID, &e.AppID, &e.Subject, &e.Message)
	e.At = time.UnixMilli(at).UTC()
	return e, err
}
