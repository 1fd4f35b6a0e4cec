package app

import (
	"context"
	"errors"
	"time"
)

// glance is the time between two looks at an instance that is watched.
const glance = 250 * time.Millisecond

// watch returns nil once an instance has lived through its window: one
// process, from the first look to the last. A single look proves nothing, so
// it compares how often and when the runtime started it.
func (s *Service) watch(ctx context.Context, i instance, window time.Duration) (seen instance, err error) {
	over := time.NewTimer(window)
	defer over.Stop()
	next := time.NewTicker(glance)
	defer next.Stop()
	var started time.Time
	for last := false; ; {
		now, found, err := i.by.look(ctx, i.id)
		if ctx.Err() != nil {
			return seen, ctx.Err()
		}
		if err != nil {
			return seen, err
		}
		if !found {
			return seen, errors.New("it was removed while it was watched: find out who removes instances on this node")
		}
		seen = now
		switch {
		case seen.phase != running || seen.restarts != i.restarts || !started.IsZero() && !seen.startedAt.Equal(started):
			return seen, errors.New(fate(seen))
		case seen.unhealthy:
			return seen, errors.New("the health check of its image fails")
		case last:
			return seen, nil
		}
		started = seen.startedAt
		select {
		case <-ctx.Done():
		case <-over.C:
			last = true
		case <-next.C:
		}
	}
}
