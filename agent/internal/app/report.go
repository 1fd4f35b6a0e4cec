package app

import (
	"context"
	"fmt"
	"slices"

	"github.com/beckon-fleet/beckon/api"
)

// Observe reports what really runs of this node's deployments. Apps that a
// command is at are left out, and so is an instance of which nobody knows yet
// whether it stays up: the command's result says what becomes of them. silent
// are the runtimes that did not answer: of what they run nothing is known.
func (s *Service) Observe(ctx context.Context) (seen []api.DeploymentReport, silent map[api.Runtime]error) {
	before := s.changing()
	silent = map[api.Runtime]error{}
	apps := map[string]string{} // by deployment
	for _, r := range s.runtimes() {
		all, err := r.instances(ctx, "")
		if err != nil {
			silent[r.name()] = fmt.Errorf("observe: %w", err)
		}
		for _, i := range all {
			state, words := s.judge(i)
			if state == "" || before[i.app] > 0 {
				continue
			}
			if state == api.DeploymentFailed {
				words = message(words, s.lastLines(ctx, i))
			}
			apps[i.deployment] = i.app
			instance := i.report()
			seen = append(seen, api.DeploymentReport{DeploymentID: i.deployment, State: state, Message: words, Instance: &instance})
		}
	}
	after := s.changing() // what was seen of them may be over
	return slices.DeleteFunc(seen, func(r api.DeploymentReport) bool { return after[apps[r.DeploymentID]] > 0 }), silent
}

// judge says in which state an instance is, and why; "" is not known yet. A
// process that was restarted counts as running after it has lived through the
// window anew: else a crash loop would look well between two crashes.
func (s *Service) judge(i instance) (state api.DeploymentState, words string) {
	switch i.phase {
	case running:
		return s.judgeRunning(i)
	case looping:
		return api.DeploymentFailed, fmt.Sprintf("%s and will be started again (%d restarts so far)", fate(i), i.restarts)
	case down:
		if i.held {
			return api.DeploymentStopped, ""
		}
		return api.DeploymentFailed, fate(i)
	}
	return "", ""
}

func (s *Service) judgeRunning(i instance) (state api.DeploymentState, words string) {
	age := s.clock().Sub(i.startedAt)
	young := age >= 0 && age < i.window // below 0 the clock was set back: age says nothing
	switch {
	case young && i.restarts > 0:
		return api.DeploymentFailed, fmt.Sprintf("%s; since its last start (%d restarts so far) it has not run for %s yet", fate(i), i.restarts, i.window)
	case young && !i.proven():
		return "", ""
	case i.unhealthy:
		return api.DeploymentRunning, "the health check of its image fails"
	}
	return api.DeploymentRunning, ""
}
