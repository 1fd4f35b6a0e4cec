package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/beckon-fleet/beckon/api"
)

// Remove takes all instances of an app off this node, and names those that
// were there.
func (s *Service) Remove(ctx context.Context, p api.RemovePayload) (api.RemoveResult, error) {
	defer s.work(p.AppID)()
	all, err := s.instances(ctx, p.AppID, "")
	if err != nil {
		return api.RemoveResult{}, fmt.Errorf("remove %s: %w", p.App, err)
	}
	res := api.RemoveResult{DeploymentIDs: []string{}}
	var failed error
	for _, i := range all {
		if err := s.discard(ctx, i); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		res.DeploymentIDs = append(res.DeploymentIDs, i.deployment)
	}
	if failed != nil {
		return res, fmt.Errorf("remove %s: %w", p.App, failed)
	}
	return res, nil
}

// discard stops an instance, gently, and removes it.
func (s *Service) discard(ctx context.Context, i instance) error {
	if i.up() {
		if err := i.by.stop(ctx, i.id); err != nil {
			return err
		}
	}
	return i.by.remove(ctx, i.id)
}
