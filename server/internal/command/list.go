package command

import (
	"context"
	"fmt"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/node"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// Get is api.GetCommand.
func (s *Service) Get(ctx context.Context, req api.CommandRequest) (status api.CommandStatus, err error) {
	err = s.Store.View(ctx, func(tx *store.Tx) error {
		c, err := get(tx, req.ID)
		if err != nil {
			return err
		}
		status, err = s.status(tx, c)
		return err
	})
	return status, err
}

// List is api.ListCommands.
func (s *Service) List(ctx context.Context, req api.ListCommandsRequest) (page api.Page[api.CommandStatus], err error) {
	err = s.Store.View(ctx, func(tx *store.Tx) error {
		nodeID := ""
		if req.Node != "" {
			n, err := node.Find(tx, req.Node)
			if err != nil {
				return err
			}
			nodeID = n.ID
		}
		rows, err := tx.Query(selectCommands+`
			WHERE ($1 = '' OR c.id < $1) AND ($2 = '' OR c.node_id = $2) AND ($3 = '' OR c.state = $3)
				AND ($4 = '' OR c.app_id = $4 OR c.app_id IN (SELECT id FROM apps WHERE name = $4))
			ORDER BY c.id DESC LIMIT $5`, req.After, nodeID, req.State, req.App, req.PageLimit()+1)
		if err != nil {
			return fmt.Errorf("list commands: %w", err)
		}
		raw, err := store.Page(rows, req.PageLimit(), scan, func(c Command) string { return c.ID })
		if err != nil {
			return err
		}
		page, err = s.statusPage(tx, raw)
		return err
	})
	return page, err
}

func (s *Service) statusPage(tx *store.Tx, raw api.Page[Command]) (page api.Page[api.CommandStatus], err error) {
	page.Items, page.Next = make([]api.CommandStatus, len(raw.Items)), raw.Next
	for i, c := range raw.Items {
		if page.Items[i], err = s.status(tx, c); err != nil {
			return page, err
		}
	}
	return page, nil
}

// Statuses is how the commands stand, in the order of ids.
func (s *Service) Statuses(tx *store.Tx, ids []string) ([]api.CommandStatus, error) {
	list := make([]api.CommandStatus, len(ids))
	for i, id := range ids {
		c, err := get(tx, id)
		if err != nil {
			return nil, err
		}
		if list[i], err = s.status(tx, c); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// anyOpen reports whether one of the commands has not ended: what a waiter asks
// each time it is woken.
func anyOpen(tx *store.Tx, ids []string) (bool, error) {
	for _, id := range ids {
		var state api.State
		if err := tx.QueryRow(`SELECT state FROM commands WHERE id = $1`, id).Scan(&state); err != nil {
			return false, fmt.Errorf("read state: %w", err)
		}
		if !state.Ended() {
			return true, nil
		}
	}
	return false, nil
}

// Await returns how the commands stand when all of them have ended, after the
// wait, or when the caller has gone: what was asked is done all the same, and
// the answer may be kept for a repeat.
func (s *Service) Await(ctx context.Context, ids []string, wait time.Duration) (list []api.CommandStatus, err error) {
	waiter := s.Hub.Wait(ids...)
	defer waiter.Done()
	end := time.NewTimer(wait)
	defer end.Stop()
	view := context.WithoutCancel(ctx) // what was asked is done, whether its caller is there or not
	for waiting := wait > 0; waiting; {
		err := s.Store.View(view, func(tx *store.Tx) error {
			waiting, err = anyOpen(tx, ids)
			return err
		})
		if err != nil || !waiting {
			break
		}
		select {
		case <-end.C:
			waiting = false
		case <-ctx.Done():
			waiting = false
		case _, waiting = <-waiter.C(): // closed, it says that the server stops
		}
	}
	err = s.Store.View(view, func(tx *store.Tx) error {
		list, err = s.Statuses(tx, ids)
		return err
	})
	return list, err
}

// Counts counts the commands that have not ended, by state.
func Counts(tx *store.Tx) (map[api.State]int, error) {
	rows, err := tx.Query(`SELECT state, COUNT(*) FROM commands WHERE state IN ('queued', 'delivered', 'acked') GROUP BY state`)
	if err != nil {
		return nil, fmt.Errorf("count commands: %w", err)
	}
	counts := map[api.State]int{api.Queued: 0, api.Delivered: 0, api.Acked: 0}
	_, err = store.Collect(rows, func(row store.Scanner) (state api.State, err error) {
		var n int
		err = row.Scan(&state, &n)
		counts[state] = n
		return state, err
	})
	return counts, err
}

// Wanted lists the ids of the node's acked commands, oldest first: their
// results are missing.
func Wanted(tx *store.Tx, nodeID string) ([]string, error) {
	rows, err := tx.Query(`SELECT id FROM commands WHERE node_id = $1 AND state = 'acked' ORDER BY seq LIMIT 50`, nodeID)
	if err != nil {
		return nil, fmt.Errorf("list wanted results: %w", err)
	}
	return store.Collect(rows, store.ScanText)
}
