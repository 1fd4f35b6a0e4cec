package agent

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/journal"
	"github.com/beckon-fleet/beckon/agent/internal/link"
	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/internal/fault"
)

// commands fetches what is to be done and lets the dispatcher take it. A cursor
// that promised something where there is nothing costs one fetch a second.
func (a *Agent) commands(ctx context.Context) (time.Duration, error) {
	found := false
	for after := int64(0); ; {
		res, err := link.Call(ctx, a.link, api.Commands, api.CommandsRequest{After: after}, 0)
		if err != nil {
			return 0, err
		}
		if len(res.Commands) > 0 {
			fault.At("received")
		}
		found = found || len(res.Commands) > 0
		if err := a.dispatcher.Take(ctx, res.Commands); err != nil {
			return 0, err
		}
		last := lastSeq(res.Commands)
		if !res.More || last <= after {
			a.fetched(res.Cursor)
			break
		}
		after = last
	}
	if err := a.journal.Sweep(); err != nil {
		return 0, err
	}
	if !found {
		a.restAfterNothing(ctx)
	}
	return a.cfg.Pace.Refetch, nil
}

// restAfterNothing bounds what forged cursors cost: the first fetch in vain is
// free, the next ones come a second apart.
func (a *Agent) restAfterNothing(ctx context.Context) {
	pause := time.Second - time.Since(a.vainAt)
	if pause > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	a.vainAt = time.Now()
}

func (a *Agent) fetched(cursor int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noticed.fetched = cursor
}

// lastSeq is where the next page begins. It is not verified: a wrong one costs
// a page, which the next fetch brings.
func lastSeq(items []json.RawMessage) int64 {
	for i := len(items) - 1; i >= 0; i-- {
		var item struct {
			Seq int64 `json:"seq"`
		}
		if json.Unmarshal(items[i], &item) == nil {
			return item.Seq
		}
	}
	return 0
}

func (a *Agent) ack(ctx context.Context, id string) error {
	_, err := link.Call(ctx, a.link, api.Ack, api.AckRequest{ID: id}, 0)
	return err
}

// sendResults sends what has no answer yet. A result that differs from what
// the server has is confirmed too: the first stays.
func (a *Agent) sendResults(ctx context.Context) (time.Duration, error) {
	unsent, err := a.journal.In(journal.Finished)
	if err != nil {
		return 0, err
	}
	for _, e := range unsent {
		_, err := link.Call(ctx, a.link, api.PostResult, api.ResultRequest{ID: e.ID, Result: *e.Result}, 0)
		problem, ours := errors.AsType[*api.Error](err)
		switch {
		case err == nil:
			fault.At("result sent")
		case ours && problem.Next() == api.ThenGiveUp:
			a.cfg.Log.Error("the control plane did not take a result", "command", e.ID, "status", e.Result.Status, "err", err)
		default:
			return 0, err
		}
		if err := a.journal.Confirm(e.ID); err != nil {
			return 0, err
		}
		fault.At("result confirmed")
	}
	if len(unsent) > 0 {
		a.askWhatIsActive()
	}
	return a.cfg.Pace.Refetch, nil
}

// askWhatIsActive has the next heartbeat say hello, to whose answer the server
// adds what it believes to be here: results have changed that.
func (a *Agent) askWhatIsActive() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noticed.helloDue = true
}
