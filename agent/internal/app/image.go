package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/docker"
	"github.com/beckon-fleet/beckon/api"
)

// fetch pulls the image if it is not here. What may pass by itself is tried
// three times, if ctx leaves the time.
func (c containers) fetch(ctx context.Context, p api.DeployPayload) error {
	image := p.Image
	here, err := c.engine.HasImage(ctx, image)
	if err != nil {
		return fmt.Errorf("look for image: %w", err)
	}
	if here {
		return nil
	}
	for pause := 2 * time.Second; ; pause *= 4 {
		err = c.engine.Pull(ctx, image)
		passing := errors.Is(err, docker.RegistryBusy) || errors.Is(err, docker.RegistryUnreachable)
		if end, ok := ctx.Deadline(); !passing || pause > 8*time.Second || ok && time.Until(end) < pause {
			break
		}
		if wait(ctx, pause) != nil {
			break // what the registry did says more than that time is up
		}
	}
	if err != nil {
		return fmt.Errorf("pull image: %w", err)
	}
	return nil
}

// wait returns nil when d is over.
func wait(ctx context.Context, d time.Duration) error {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
