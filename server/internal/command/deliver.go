package command

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
	"github.com/beckon-fleet/beckon/internal/fault"
	"github.com/beckon-fleet/beckon/server/internal/auth"
	"github.com/beckon-fleet/beckon/server/internal/event"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

const (
	maxFetch  = 50                   // commands in one answer
	maxAnswer = api.MaxBody - 4<<10  // bytes of them; the rest is the frame
	maxItem   = api.MaxBody - 64<<10 // bytes of one: escaping can make much of little
)

// Fetch is api.Commands. What it returns is delivered, and that is durable
// before the answer goes out.
func (s *Service) Fetch(ctx context.Context, req api.CommandsRequest) (res api.CommandsResponse, err error) {
	caller := auth.From(ctx)
	limit := req.Limit
	if limit <= 0 || limit > maxFetch {
		limit = maxFetch
	}
	var some []Command
	read := func(tx *store.Tx) error {
		some, res, err = s.pending(tx, caller.Node, req.After, limit)
		return err
	}
	// An empty queue is the usual answer, and costs no write.
	if err := s.Store.View(ctx, read); err != nil || !slices.ContainsFunc(some, queued) {
		return res, err
	}
	err = s.Store.Update(ctx, func(tx *store.Tx) error {
		if err := read(tx); err != nil {
			return err
		}
		for i, c := range some {
			if !queued(c) {
				continue
			}
			if err := s.move(tx, c, api.Delivered, change{}); err != nil {
				return err
			}
			c.State = api.Delivered
			if res.Commands[i], err = s.item(c); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return api.CommandsResponse{}, err
	}
	fault.At("delivered")
	return res, nil
}

func queued(c Command) bool { return c.State == api.Queued }

// pending is the answer as things stand: as much as fits into one.
func (s *Service) pending(tx *store.Tx, nodeID string, after int64, limit int) (some []Command, res api.CommandsResponse, err error) {
	res.Commands = []json.RawMessage{}
	list, err := s.listPending(tx, nodeID, after, limit+1)
	if err != nil {
		return nil, res, err
	}
	if err := tx.QueryRow(`SELECT command_count FROM nodes WHERE id = $1`, nodeID).Scan(&res.Cursor); err != nil {
		return nil, res, fmt.Errorf("read cursor: %w", err)
	}
	size := 0
	for i, c := range list {
		item, err := s.item(c)
		if err != nil {
			return nil, res, err
		}
		if size += len(item) + 1; i == limit || size > maxAnswer {
			res.More = true
			return list[:i], res, nil
		}
		res.Commands = append(res.Commands, item)
	}
	return list, res, nil
}

// listPending is the node's queued and delivered commands that have not
// expired, in the order of seq.
func (s *Service) listPending(tx *store.Tx, nodeID string, after int64, limit int) ([]Command, error) {
	rows, err := tx.Query(selectCommands+`
		WHERE c.node_id = $1 AND c.state IN ('queued', 'delivered') AND c.seq > $2 AND c.expires_at > $3 ORDER BY c.seq LIMIT $4`,
		nodeID, after, millis(tx.Now), limit)
	if err != nil {
		return nil, fmt.Errorf("list commands: %w", err)
	}
	return store.Collect(rows, scan)
}

func (s *Service) item(c Command) (json.RawMessage, error) {
	text, err := c.document()
	if err != nil {
		return nil, fmt.Errorf("encode command: %w", err)
	}
	return json.Marshal(api.CommandItem{Envelope: s.Signer.Sign(seal.TagCommand, c.NodeID, c.Seq, text), State: c.State})
}

// Ack is api.Ack, the commit point: expiry is judged here, once, and after a
// yes the server neither expires nor cancels the command any more.
func (s *Service) Ack(ctx context.Context, req api.AckRequest) (res api.AckResponse, err error) {
	caller, err := instance(ctx)
	if err != nil {
		return res, err
	}
	var refused error // not returned inside: what is expired must be stored
	err = s.Store.Update(ctx, func(tx *store.Tx) error {
		refused = nil
		c, err := ofNode(tx, req.ID, caller.Node)
		if err != nil {
			return err
		}
		refused, err = s.ack(tx, c, caller.Instance)
		return err
	})
	if err == nil {
		err = refused
	}
	if err == nil {
		fault.At("acked")
	}
	return api.AckResponse{State: api.Acked}, err
}

// instance is the caller, who must say which process of its node it is: of two
// only one may run a command.
func instance(ctx context.Context) (auth.Caller, error) {
	caller := auth.From(ctx)
	if caller.Instance == (api.Instance{}) {
		return caller, api.Errorf(api.Invalid, "this call needs %s: <epoch>.<starts>.<random>", api.HeaderAgentInstance)
	}
	return caller, nil
}

func (s *Service) ack(tx *store.Tx, c Command, by api.Instance) (refused, err error) {
	switch c.State {
	case api.Acked:
		return s.ackAgain(tx, c, by)
	case api.Queued, api.Delivered:
		if millis(tx.Now) >= c.ExpiresAt {
			return gone(api.Expired, c), s.expire(tx, c)
		}
		return nil, s.catchUp(tx, &c, api.Succeeded, by)
	}
	return gone(c.State, c), nil
}

// ackAgain tells the same instance, or a later start on the same journal, yes
// again; another one never.
func (s *Service) ackAgain(tx *store.Tx, c Command, by api.Instance) (refused, err error) {
	held, err := api.ParseInstance(c.AckedBy)
	if err != nil {
		return nil, fmt.Errorf("read acking instance: %w", err)
	}
	if !by.Inherits(held) {
		return api.Errorf(api.AckedElsewhere, "command %s was acked by another process of this node; it must not run here", c.ID), nil
	}
	if by != held {
		_, err = tx.Exec(`UPDATE commands SET acked_by = $2 WHERE id = $1 AND state = 'acked'`, c.ID, by.String())
	}
	return nil, err
}

func gone(s api.State, c Command) error {
	switch s {
	case api.Expired:
		return api.Errorf(api.CommandExpired, "command %s expired before it was acked; it must not run", c.ID)
	case api.Canceled:
		return api.Errorf(api.CommandCanceled, "command %s was canceled; it must not run", c.ID)
	case api.Lost, api.Abandoned:
		return api.Errorf(api.CommandLost, "command %s was given up as %s; it must not run any more", c.ID, s)
	}
	return api.Errorf(api.CommandFinished, "command %s has ended as %s; it must not run again", c.ID, s)
}

// Result is api.PostResult. The first result stays; a command nobody can tell
// of takes one late result, beside its state.
func (s *Service) Result(ctx context.Context, req api.ResultRequest) (res api.ResultResponse, err error) {
	caller, err := instance(ctx)
	if err != nil {
		return res, err
	}
	text, err := json.Marshal(req.Result)
	if err != nil {
		return res, fmt.Errorf("encode result: %w", err)
	}
	err = s.Store.Update(ctx, func(tx *store.Tx) error {
		c, err := ofNode(tx, req.ID, caller.Node)
		if api.AsError(err).Code == api.NotFound {
			res.State = ""
			return event.Record(tx, api.Event{
				Kind: "result_unclaimed", NodeID: caller.Node, Subject: req.ID,
				Message: fmt.Sprintf("a result (%s) came for a command that is not known here", req.Status),
			})
		}
		if err != nil {
			return err
		}
		res.State, err = s.takeResult(tx, c, caller.Instance, req.Result, string(text))
		return err
	})
	if err == nil {
		fault.At("result stored")
	}
	return res, err
}

func (s *Service) takeResult(tx *store.Tx, c Command, by api.Instance, r api.Result, text string) (api.State, error) {
	to := r.Status.State()
	if err := s.catchUp(tx, &c, to, by); err != nil {
		return "", err
	}
	switch {
	case c.State.May(to):
		return to, s.move(tx, c, to, change{reason: r.Reason, result: &r, text: text})
	case same(c.Result, text), same(c.LateResult, text):
		return c.State, nil
	case (c.State == api.Lost || c.State == api.Abandoned) && c.Result == "" && c.LateResult == "":
		return c.State, s.keepLate(tx, c, r, text)
	}
	return "", api.Errorf(api.ResultDiffers, "command %s has ended as %s; its first result stays", c.ID, c.State)
}

// catchUp makes the steps that a database restored from a backup has
// forgotten: an agent acks before it runs, so its result says that it did.
func (s *Service) catchUp(tx *store.Tx, c *Command, to api.State, by api.Instance) error {
	for _, step := range []api.State{api.Delivered, api.Acked} {
		if c.State.May(to) || !c.State.May(step) {
			continue
		}
		if err := s.move(tx, *c, step, change{by: by.String()}); err != nil {
			return err
		}
		c.State = step
	}
	return nil
}

func same(kept, sent string) bool { return kept != "" && kept == sent }

// keepLate records what a lost command turned out to have done. Its state
// stays: what was said of it was true when it was said.
func (s *Service) keepLate(tx *store.Tx, c Command, r api.Result, text string) error {
	if _, err := tx.Exec(`UPDATE commands SET late_result = $2 WHERE id = $1 AND late_result = ''`, c.ID, text); err != nil {
		return fmt.Errorf("keep late result: %w", err)
	}
	err := event.Record(tx, api.Event{
		Kind: "command_late_result", NodeID: c.NodeID, AppID: c.AppID, Subject: c.ID, Message: string(r.Status),
	})
	if err != nil {
		return err
	}
	return s.hooks[c.Kind](tx, c, r.Status.State(), &r)
}
