package command

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/internal/fault"
	"github.com/beckon-fleet/beckon/server/internal/event"
	"github.com/beckon-fleet/beckon/server/internal/node"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// Options of a command; the zero value is usual.
type Options struct {
	Life    time.Duration // until it expires without an ack; api.CommandLife unless said
	StartBy *time.Time
}

// Send is api.SendCommand: a command of a kind that is known by name only.
func (s *Service) Send(ctx context.Context, req api.SendCommandRequest) (res api.SendCommandResponse, err error) {
	k, err := api.KindNamed(req.Kind)
	if err != nil {
		return res, err
	}
	var id string
	err = s.Store.Update(ctx, func(tx *store.Tx) error {
		n, err := node.Find(tx, req.Node)
		if err != nil {
			return err
		}
		id, err = s.enqueue(tx, n, k, req.Payload, Options{Life: time.Duration(req.ExpiresInS) * time.Second, StartBy: req.StartBy})
		return err
	})
	if err != nil {
		return res, err
	}
	fault.At("stored")
	statuses, err := s.Await(ctx, []string{id}, req.Wait.Duration())
	if err != nil {
		return res, err
	}
	return api.SendCommandResponse{CommandStatus: statuses[0], Awaited: req.Wait > 0}, nil
}

// Enqueue adds a command in the caller's transaction: the row that it is about
// and the command stand or fall together.
func Enqueue[P api.Payload, R any](tx *store.Tx, s *Service, n node.Row, k api.Kind[P, R], p P) (id string, err error) {
	payload, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("encode payload: %w", err)
	}
	return s.enqueue(tx, n, k, payload, Options{})
}

// enqueue is where both end.
func (s *Service) enqueue(tx *store.Tx, n node.Row, k api.AnyKind, payload json.RawMessage, o Options) (id string, err error) {
	if len(payload) > api.MaxDocument {
		return "", api.Errorf(api.TooLarge, "the payload has %d bytes; %d is the most", len(payload), api.MaxDocument)
	}
	if err := k.Check(payload); err != nil {
		return "", err
	}
	if n.Status != api.StatusActive {
		return "", api.Errorf(api.NodeInactive, "node %s is %s; commands go to active nodes only", n.Name, n.Status)
	}
	if err := n.Allows(k); err != nil {
		return "", err
	}
	seq, err := nextSeq(tx, n.ID)
	if err != nil {
		return "", err
	}
	if o.Life == 0 {
		o.Life = api.CommandLife
	}
	id = tx.NewID("cmd")
	app := appOf(payload)
	c := Command{
		ID: id, NodeID: n.ID, Seq: seq, Kind: k.Name(), Payload: string(payload), State: api.Queued,
		CreatedAt: millis(tx.Now), ExpiresAt: millis(tx.Now.Add(o.Life)), StartBy: store.Millis(o.StartBy),
	}
	item, err := s.item(c)
	if err != nil {
		return "", err
	}
	if len(item) > maxItem {
		return "", api.Errorf(api.TooLarge, "the command has %d bytes once it is written down for the node; %d is the most", len(item), maxItem)
	}
	_, err = tx.Exec(`
		INSERT INTO commands (id, node_id, seq, kind, payload, app_id, state, created_at, expires_at, start_by)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		c.ID, c.NodeID, c.Seq, c.Kind, c.Payload, app, c.State, c.CreatedAt, c.ExpiresAt, c.StartBy)
	if err != nil {
		return "", fmt.Errorf("store command: %w", err)
	}
	tx.After(func() { s.Hub.Nudge(n.ID) })
	return id, event.Record(tx, api.Event{Kind: "command_queued", NodeID: n.ID, AppID: app, Subject: id, Message: k.Name()})
}

// appOf finds the app a payload is about, so that its commands can be listed.
func appOf(payload json.RawMessage) string {
	var about struct {
		AppID string `json:"app_id"`
	}
	if json.Unmarshal(payload, &about) != nil {
		return ""
	}
	return about.AppID
}

// nextSeq is above the last one, and after a restore from a backup above all
// that were ever given out: the clock is. The row's lock puts writers in line.
func nextSeq(tx *store.Tx, node string) (seq int64, err error) {
	err = tx.QueryRow(`
		UPDATE nodes SET command_count = command_count + 1,
			command_seq = CASE WHEN command_seq >= $2 THEN command_seq + 1 ELSE $2 END
		WHERE id = $1 RETURNING command_seq`, node, millis(tx.Now)).Scan(&seq)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, api.Errorf(api.NotFound, "there is no node %q", node)
	}
	if err != nil {
		return 0, fmt.Errorf("number command: %w", err)
	}
	return seq, nil
}

// changed moves the node's commands cursor and wakes it once that is durable.
func (s *Service) changed(tx *store.Tx, node string) error {
	tx.After(func() { s.Hub.Nudge(node) })
	_, err := tx.Exec(`UPDATE nodes SET command_count = command_count + 1 WHERE id = $1`, node)
	if err != nil {
		return fmt.Errorf("move commands cursor: %w", err)
	}
	return nil
}
