package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/beckon-fleet/beckon/api"
)

// Stop stops the instances of an app and keeps them. It names those that
// stand still now.
func (s *Service) Stop(ctx context.Context, p api.StopPayload) (api.StopResult, error) {
	defer s.work(p.AppID)()
	all, err := s.instances(ctx, p.AppID, "")
	if err != nil {
		return api.StopResult{}, fmt.Errorf("stop %s: %w", p.App, err)
	}
	res := api.StopResult{DeploymentIDs: []string{}}
	var failed error
	for _, i := range all {
		if i.phase == made {
			continue // of a deploy that will go on or clean up
		}
		if err := s.halt(ctx, i); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		res.DeploymentIDs = append(res.DeploymentIDs, i.deployment)
	}
	if failed != nil {
		return res, fmt.Errorf("stop %s: %w", p.App, failed)
	}
	return res, nil
}

// halt stops an instance so that only we start it again, and marks it as
// held. One that ended by itself gets no mark, as always would start it at
// the next boot; it only loses what would.
func (s *Service) halt(ctx context.Context, i instance) error {
	mark := never
	if i.up() {
		if err := i.by.stop(ctx, i.id); err != nil {
			return err
		}
		mark = always
	}
	if i.restart == mark || i.held {
		return nil
	}
	return i.by.setRestart(ctx, i.id, mark)
}

// revive starts an instance that was stopped, with the restart its app wants.
func (s *Service) revive(ctx context.Context, i instance) error {
	if want := ofPolicy(i.wanted); i.restart != want {
		if err := i.by.setRestart(ctx, i.id, want); err != nil {
			return err
		}
	}
	taken, err := i.by.start(ctx, i.id)
	if taken {
		return portTaken(i)
	}
	return err
}

// portTaken says which port is in use, and what helps.
func portTaken(i instance) error {
	return fmt.Errorf("%s is in use on this node: free it, or deploy the app with another publish", i.publish)
}
