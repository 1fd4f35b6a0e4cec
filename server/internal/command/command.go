// Package command is the queue: what was asked of a node, and what is known of
// the answer (PROTOCOL.md section 6).
package command

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
	"github.com/beckon-fleet/beckon/server/internal/nudge"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// Service is the queue. Fill the exported fields, then use it.
type Service struct {
	Store  *store.Store
	Hub    *nudge.Hub
	Signer seal.Signer
	// Waiting says for a person whom a command for a node waits on.
	Waiting func(tx *store.Tx, node string) (string, error)

	hooks map[string]Hook
}

// Hook is told, in the transaction that makes it so, that a command of its
// kind came into a state. result is nil but where the agent gave one.
type Hook func(tx *store.Tx, c Command, to api.State, result *api.Result) error

// On has hook follow the commands of kind k.
func (s *Service) On(k api.AnyKind, hook Hook) {
	if s.hooks == nil {
		s.hooks = map[string]Hook{}
	}
	s.hooks[k.Name()] = hook
}

// Unfollowed names the kinds whose commands nobody follows.
func (s *Service) Unfollowed() (names []string) {
	for _, k := range api.Kinds {
		if s.hooks[k.Name()] == nil {
			names = append(names, k.Name())
		}
	}
	return names
}

// Command is a row of the queue.
type Command struct {
	ID, NodeID, Node, Kind string
	Seq                    int64
	Payload                string
	AppID                  string
	State                  api.State
	Reason                 string
	CreatedAt, ExpiresAt   int64
	StartBy                int64
	DeliveredAt, AckedAt   int64
	AckedBy                string
	EndedAt                int64
	Result, LateResult     string
}

const selectCommands = `
	SELECT c.id, c.node_id, n.name, c.kind, c.seq, c.payload, c.app_id, c.state, c.reason, c.created_at, c.expires_at, c.start_by,
		c.delivered_at, c.acked_at, c.acked_by, c.ended_at, c.result, c.late_result
	FROM commands c JOIN nodes n ON n.id = c.node_id `

func scan(row store.Scanner) (c Command, err error) {
	err = row.Scan(&c.ID, &c.NodeID, &c.Node, &c.Kind, &c.Seq, &c.Payload, &c.AppID, &c.State, &c.Reason, &c.CreatedAt, &c.ExpiresAt,
		&c.StartBy, &c.DeliveredAt, &c.AckedAt, &c.AckedBy, &c.EndedAt, &c.Result, &c.LateResult)
	return c, err
}

func get(tx *store.Tx, id string) (Command, error) {
	c, err := scan(tx.QueryRow(selectCommands+`WHERE c.id = $1`, id))
	if errors.Is(err, sql.ErrNoRows) {
		return c, api.Errorf(api.NotFound, "there is no command %q", id)
	}
	if err != nil {
		return c, fmt.Errorf("read command: %w", err)
	}
	return c, nil
}

// ofNode is get for an agent: a command of another node is none.
func ofNode(tx *store.Tx, id, node string) (Command, error) {
	c, err := get(tx, id)
	if err == nil && c.NodeID != node {
		return c, api.Errorf(api.NotFound, "there is no command %q", id)
	}
	return c, err
}

// document is the signed text. It is made anew for each delivery, of what the
// row holds, and is the same each time.
func (c Command) document() ([]byte, error) {
	return json.Marshal(api.Command{
		ID:        c.ID,
		Kind:      c.Kind,
		CreatedAt: *store.Time(c.CreatedAt),
		ExpiresAt: *store.Time(c.ExpiresAt),
		StartBy:   store.Time(c.StartBy),
		Payload:   json.RawMessage(c.Payload),
	})
}

// status is what operators see of c.
func (s *Service) status(tx *store.Tx, c Command) (api.CommandStatus, error) {
	status := api.CommandStatus{
		ID: c.ID, NodeID: c.NodeID, Node: c.Node, Seq: c.Seq, Kind: c.Kind, Payload: json.RawMessage(c.Payload),
		State: c.State, Reason: c.Reason, NeverRan: c.State.NeverRan(),
		CreatedAt: *store.Time(c.CreatedAt), ExpiresAt: *store.Time(c.ExpiresAt),
		DeliveredAt: store.Time(c.DeliveredAt), AckedAt: store.Time(c.AckedAt), EndedAt: store.Time(c.EndedAt),
	}
	var err error
	if c.State.Ended() {
		if text := c.Result + c.LateResult; text != "" { // never both
			err = json.Unmarshal([]byte(text), &status.Result)
		}
		return status, err
	}
	status.WaitingOn, err = s.Waiting(tx, c.NodeID)
	return status, err
}

func millis(t time.Time) int64 { return t.UnixMilli() }
