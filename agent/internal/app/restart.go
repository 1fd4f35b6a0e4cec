package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

// Restart stops the instance of an app, starts it, and watches it as a deploy
// does. There is nothing to go back to: an instance that does not stay up is
// an error and remains, under the restart policy of its app.
func (s *Service) Restart(ctx context.Context, p api.RestartPayload) (api.RestartResult, error) {
	defer s.work(p.AppID)()
	i, found, err := s.current(ctx, p)
	if err == nil && !found {
		err = errors.New("it has no instance on this node: deploy it first")
	}
	if err == nil && i.up() {
		err = i.by.stop(ctx, i.id)
	}
	if err == nil {
		err = s.revive(ctx, i)
	}
	if err != nil {
		return api.RestartResult{}, fmt.Errorf("restart %s: %w", p.App, err)
	}
	i.restarts = 0
	seen, err := s.watch(ctx, i, i.window)
	switch {
	case err == nil:
		return s.restarted(seen), nil
	case ctx.Err() != nil:
		return api.RestartResult{}, fmt.Errorf("restart %s: %w", p.App, err)
	}
	words := fmt.Sprintf("%s was restarted and failed: %v", p.App, err)
	return api.RestartResult{}, errors.New(message(words, s.lastLines(ctx, seen)))
}

// Restarted tells after a crash whether a restart that was asked for at since
// has happened: the instance runs and was started later than that.
func (s *Service) Restarted(ctx context.Context, p api.RestartPayload, since time.Time) (api.RestartResult, bool, error) {
	defer s.work(p.AppID)()
	i, found, err := s.current(ctx, p)
	if err == nil && (!found || i.phase != running || !i.startedAt.After(since)) {
		return api.RestartResult{}, false, nil
	}
	if want := ofPolicy(i.wanted); err == nil && i.restart != want {
		err = i.by.setRestart(ctx, i.id, want)
	}
	if err != nil {
		return api.RestartResult{}, false, fmt.Errorf("look whether %s was restarted: %w", p.App, err)
	}
	return s.restarted(i), true, nil
}

func (s *Service) restarted(i instance) api.RestartResult {
	return api.RestartResult{DeploymentID: i.deployment, Instance: i.report()}
}

// current is the instance that an app has: the newest that is up, else the
// newest that ever ran.
func (s *Service) current(ctx context.Context, p api.RestartPayload) (i instance, found bool, err error) {
	all, err := s.instances(ctx, p.AppID, "")
	if err != nil {
		return instance{}, false, err
	}
	for _, one := range all {
		if one.up() {
			return one, true, nil
		}
		if !found && one.phase == down {
			i, found = one, true
		}
	}
	return i, found, nil
}
