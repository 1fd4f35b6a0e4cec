package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

// Deploy makes a deployment the running one of its app. It returns without an
// error only when its instance has lived through its observation; else the
// instance is gone again and the one before it has its place. Called again
// for the same deployment, as after a crash, it goes on with what is there.
// When ctx is canceled it leaves things as they are, for that next call.
func (s *Service) Deploy(ctx context.Context, p api.DeployPayload) (api.DeployResult, error) {
	defer s.work(p.AppID)()
	working, cancel := reserve(ctx)
	defer cancel()
	d, err := s.survey(working, p)
	if err != nil {
		return api.DeployResult{}, err
	}
	err = d.run(working)
	if err == nil {
		return api.DeployResult{Instance: d.target.report()}, nil
	}
	if !errors.Is(ctx.Err(), context.Canceled) {
		err = d.undo(ctx, err)
	}
	if errors.Is(ctx.Err(), context.Canceled) { // now or while it undid
		err = fmt.Errorf("deploy revision %d of %s: %w", p.Revision, p.App, ctx.Err())
	}
	return api.DeployResult{}, err
}

// reserve ends before ctx does, so that there is time to put things back.
func reserve(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	left := time.Until(end)
	return context.WithTimeout(ctx, left-min(left/4, time.Minute))
}

// deployment is one on its way.
type deployment struct {
	*Service
	p       api.DeployPayload
	runtime runtime    // its own; others may have run in another
	target  instance   // its own; without id until it is made
	others  []instance // of the same app, newest first
	before  *instance  // of the others: what ran when this one was made
}

// survey looks at what is there. The newest intent stays: an older revision
// that comes late is refused.
func (s *Service) survey(ctx context.Context, p api.DeployPayload) (*deployment, error) {
	all, err := s.instances(ctx, p.AppID, p.RuntimeName())
	if err != nil {
		return nil, fmt.Errorf("deploy revision %d of %s: %w", p.Revision, p.App, err)
	}
	d := &deployment{Service: s, p: p, runtime: s.runtime(p.RuntimeName())}
	for _, i := range all {
		switch {
		case i.deployment == p.DeploymentID:
			d.target = i
		case i.revision > p.Revision && i.phase != made:
			return nil, fmt.Errorf("revision %d of %s was not deployed, because the newer revision %d is on this node: "+
				"deploy the app again to change what runs", p.Revision, p.App, i.revision)
		default:
			d.others = append(d.others, i)
		}
	}
	for _, i := range d.others {
		if i.deployment == d.target.replaces || d.target.replaces == "" && i.up() {
			d.before = &i
			break
		}
	}
	return d, nil
}

// run makes, proves and puts in place.
func (d *deployment) run(ctx context.Context) error {
	d.tidy(ctx)
	if d.target.id == "" {
		if err := d.runtime.fetch(ctx, d.p); err != nil {
			return err
		}
		if err := d.make(ctx); err != nil {
			return err
		}
	}
	if err := d.prove(ctx); err != nil {
		return err
	}
	for _, old := range d.others {
		if err := d.discard(ctx, old); err != nil {
			d.log.Warn("an older instance stays", "instance", old.name, "error", err)
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err() // the next call removes the older ones
	}
	return nil
}

// tidy removes what a crash left of other deployments. What runs stays until
// its successor is proven, and so does what would come back: the instance
// before, or the newest that was stopped.
func (d *deployment) tidy(ctx context.Context) {
	back := d.before
	for _, i := range d.others {
		if back == nil && i.phase == down {
			back = &i
		}
	}
	d.others = slices.DeleteFunc(d.others, func(i instance) bool {
		if i.up() || back != nil && i.id == back.id {
			return false
		}
		err := i.by.remove(ctx, i.id)
		if err != nil {
			d.log.Warn("a leftover stays", "instance", i.name, "error", err)
		}
		return err == nil
	})
}

// make makes the instance, not started. It remembers what ran before.
func (d *deployment) make(ctx context.Context) (err error) {
	p := plan{DeployPayload: d.p, publish: d.p.Publish}
	if d.before != nil {
		p.replaces = d.before.deployment
	}
	if p.Port != 0 && p.Publish == "" {
		if p.publish, err = d.pickPort(ctx); err != nil {
			return err
		}
	}
	d.target, err = d.runtime.create(ctx, p)
	return err
}

// prove starts the instance, watches it, and only then lets the runtime
// restart it: so a crash shows with its exit code, and nothing loops.
func (d *deployment) prove(ctx context.Context) error {
	if d.target.phase == running && d.target.proven() {
		return nil
	}
	if d.target.lost { // it would be started by Keep at any moment
		if err := d.runtime.stop(ctx, d.target.id); err != nil {
			return err
		}
		d.target.phase = down
	}
	if !d.target.up() {
		if err := d.launch(ctx); err != nil {
			return err
		}
	}
	seen, err := d.watch(ctx, d.target, d.p.Observe())
	if seen.id != "" {
		d.target = seen
	}
	if err != nil {
		return err
	}
	return d.runtime.setRestart(ctx, d.target.id, ofPolicy(d.p.Restart))
}

// launch starts the instance. An instance whose port was chosen by us is made
// anew with another one when somebody was faster.
func (d *deployment) launch(ctx context.Context) error {
	const tries = 5
	if err := d.makeWay(ctx); err != nil {
		return err
	}
	if d.target.restart != never {
		if err := d.runtime.setRestart(ctx, d.target.id, never); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		taken, err := d.runtime.start(ctx, d.target.id)
		if err == nil {
			d.target.phase, d.target.restarts = running, 0
			return nil
		}
		if !taken {
			return err
		}
		if d.p.Publish != "" || try == tries {
			return portTaken(d.target)
		}
		if err := d.runtime.remove(ctx, d.target.id); err != nil {
			return err
		}
		d.target = instance{}
		if err := d.make(ctx); err != nil {
			return err
		}
	}
}

// makeWay stops what listens where the instance must.
func (d *deployment) makeWay(ctx context.Context) error {
	for _, old := range d.others {
		if old.up() && clash(old.publish, d.target.publish) {
			if err := d.halt(ctx, old); err != nil {
				return err
			}
		}
	}
	return nil
}

// undo puts things back and says what happened. The instance goes last: as
// long as it is there, the next call knows what it displaced.
func (d *deployment) undo(ctx context.Context, cause error) error {
	if errors.Is(cause, context.DeadlineExceeded) {
		cause = fmt.Errorf("the time for it ran out: %w", cause)
	}
	words := fmt.Sprintf("revision %d of %s failed: %v", d.p.Revision, d.p.App, cause)
	lines := d.lastLines(ctx, d.target)
	if d.target.up() {
		if err := d.runtime.stop(ctx, d.target.id); err != nil {
			d.log.Warn("a failed instance was not stopped", "instance", d.target.name, "error", err)
		}
	}
	if d.before != nil {
		words += "; " + d.giveBack(ctx, *d.before)
	}
	if d.target.id != "" {
		if err := d.runtime.remove(ctx, d.target.id); err != nil {
			words += fmt.Sprintf("; its instance is still there: %v", err)
		}
	}
	return errors.New(message(words, lines))
}

// giveBack starts what ran before, if it does not run any more, and says so.
func (d *deployment) giveBack(ctx context.Context, before instance) string {
	now, found, err := before.by.look(ctx, before.id)
	switch {
	case err == nil && found && now.up():
		return fmt.Sprintf("revision %d runs on", before.revision)
	case err == nil && !found:
		return fmt.Sprintf("revision %d is gone", before.revision)
	case err == nil:
		err = d.revive(ctx, now)
	}
	if err != nil {
		return fmt.Sprintf("revision %d does not run and could not be started: %v", before.revision, err)
	}
	return fmt.Sprintf("revision %d runs again", before.revision)
}
