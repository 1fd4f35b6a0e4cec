package command

import (
	"context"
	"fmt"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/event"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// change is what a transition brings with it.
type change struct {
	reason string
	by     string // the acking instance
	result *api.Result
	text   string // of result
}

// move is the only way from one state to another: along the table in package
// api, by one guarded UPDATE, with one event, and with the hook of the kind in
// the same transaction. Whoever waits is woken after the commit.
func (s *Service) move(tx *store.Tx, c Command, to api.State, ch change) error {
	if !c.State.May(to) {
		return api.Errorf(api.Conflict, "command %s is %s and cannot become %s", c.ID, c.State, to)
	}
	at := millis(tx.Now)
	won, err := tx.Changed(`
		UPDATE commands SET state = $3, reason = $4, result = $5,
			delivered_at = CASE WHEN $3 = 'delivered' THEN $6 ELSE delivered_at END,
			acked_at     = CASE WHEN $3 = 'acked' THEN $6 ELSE acked_at END,
			acked_by     = CASE WHEN $3 = 'acked' THEN $7 ELSE acked_by END,
			ended_at     = CASE WHEN $8 THEN $6 ELSE ended_at END
		WHERE id = $1 AND state = $2`, c.ID, c.State, to, ch.reason, ch.text, at, ch.by, to.Ended())
	if err != nil {
		return fmt.Errorf("move command to %s: %w", to, err)
	}
	if !won {
		return api.Errorf(api.Conflict, "command %s changed meanwhile", c.ID)
	}
	tx.After(func() { s.Hub.Nudge(c.ID) })
	err = event.Record(tx, api.Event{Kind: "command_" + string(to), NodeID: c.NodeID, AppID: c.AppID, Subject: c.ID, Message: ch.reason})
	if err != nil {
		return err
	}
	c.Reason = ch.reason
	return s.hooks[c.Kind](tx, c, to, ch.result)
}

func (s *Service) expire(tx *store.Tx, c Command) error {
	if err := s.changed(tx, c.NodeID); err != nil {
		return err
	}
	return s.move(tx, c, api.Expired, change{reason: "not_delivered"})
}

// Expire ends commands that were not acked in time. Any server may run it.
func (s *Service) Expire(ctx context.Context) error {
	const overdue = `WHERE c.state IN ('queued', 'delivered') AND c.expires_at <= $1 `
	var due bool
	err := s.Store.View(ctx, func(tx *store.Tx) error {
		return tx.QueryRow(`SELECT COUNT(*) > 0 FROM commands c `+overdue, millis(tx.Now)).Scan(&due)
	})
	if err != nil || !due {
		return err
	}
	return s.Store.Update(ctx, func(tx *store.Tx) error {
		return s.each(tx, s.expire, overdue+`ORDER BY c.seq LIMIT 500`, millis(tx.Now))
	})
}

// each does do for every command that the clause selects.
func (s *Service) each(tx *store.Tx, do func(*store.Tx, Command) error, where string, args ...any) error {
	rows, err := tx.Query(selectCommands+where, args...)
	if err != nil {
		return fmt.Errorf("select commands: %w", err)
	}
	list, err := store.Collect(rows, scan)
	if err != nil {
		return err
	}
	for _, c := range list {
		if err := do(tx, c); err != nil {
			return err
		}
	}
	return nil
}

// Left ends the commands of a node that is shut out: what it never acked has
// never run, and of the rest nobody can tell.
func (s *Service) Left(tx *store.Tx, node, reason string) error {
	return s.each(tx, func(tx *store.Tx, c Command) error {
		to := api.Canceled
		if c.State == api.Acked {
			to = api.Lost
		}
		return s.move(tx, c, to, change{reason: reason})
	}, `WHERE c.node_id = $1 AND c.state IN ('queued', 'delivered', 'acked') ORDER BY c.seq`, node)
}

// Reset ends what an earlier journal of the node had acked.
func (s *Service) Reset(tx *store.Tx, node, epoch string) error {
	return s.each(tx, func(tx *store.Tx, c Command) error {
		held, err := api.ParseInstance(c.AckedBy)
		if err == nil && held.Epoch == epoch {
			return nil
		}
		return s.move(tx, c, api.Lost, change{reason: "journal_lost"})
	}, `WHERE c.node_id = $1 AND c.state = 'acked' ORDER BY c.seq`, node)
}

// Cancel is api.CancelCommand. Of a cancel and an ack that race one wins, and
// both sides learn which.
func (s *Service) Cancel(ctx context.Context, req api.CancelCommandRequest) (status api.CommandStatus, err error) {
	err = s.Store.Update(ctx, func(tx *store.Tx) error {
		c, err := get(tx, req.ID)
		switch {
		case err != nil:
			return err
		case c.State == api.Acked:
			return api.Errorf(api.CommandAcked, "command %s was acked at %s; what its agent has taken cannot be canceled",
				c.ID, store.Time(c.AckedAt).Format(time.RFC3339))
		case c.State == api.Canceled: // a repeat
		case c.State.Ended():
			return api.Errorf(api.CommandFinished, "command %s has ended as %s", c.ID, c.State)
		default:
			if err := s.changed(tx, c.NodeID); err != nil {
				return err
			}
			if err := s.move(tx, c, api.Canceled, change{reason: "operator"}); err != nil {
				return err
			}
		}
		if c, err = get(tx, req.ID); err != nil {
			return err
		}
		status, err = s.status(tx, c)
		return err
	})
	return status, err
}
