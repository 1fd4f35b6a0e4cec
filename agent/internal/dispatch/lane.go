package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/journal"
	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/internal/fault"
)

// maxAttempts is how often a repeatable command is begun.
const maxAttempts = 3

// lane is a queue in front of one thing that commands change. It exists while
// something is in it.
type lane struct{ waiting []job }

type job struct {
	id string
	work
}

// enter puts a job at the end of its lane. One that supersedes takes the place
// of those of its kind that have not begun: the newest intent is what counts.
func (d *Dispatcher) enter(ctx context.Context, name string, j job) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.lanes[name]
	if l == nil {
		l = &lane{}
		d.lanes[name] = l
		d.wg.Go(func() { d.work(ctx, name) })
	}
	if j.kind.Supersedes() {
		kept := l.waiting[:0]
		for _, old := range l.waiting {
			if old.kind.Name() != j.kind.Name() || old.begun(d.Journal) || !d.supersede(old, j) {
				kept = append(kept, old)
			}
		}
		l.waiting = kept
	}
	l.waiting = append(l.waiting, j)
}

// begun reports whether a job of an earlier process had started: then giving
// way would hide what it may have done.
func (j job) begun(of *journal.Journal) bool {
	e, err := of.Get(j.id)
	return err != nil || e == nil || e.Step != journal.Accepted
}

// supersede reports whether the older one is out of the way: what cannot be
// journalled stays in its place, before the newer one.
func (d *Dispatcher) supersede(old, by job) bool {
	err := d.finish(old.id, api.Result{
		Status: api.OutcomeSuperseded, Reason: "newer_command", Error: "it gave way to command " + by.id + " before it began",
	})
	if err != nil {
		d.Log.Error("superseded command not journalled", "command", old.id, "err", err)
	}
	return err == nil
}

// work runs a lane until it is empty.
func (d *Dispatcher) work(ctx context.Context, name string) {
	for {
		d.mu.Lock()
		l := d.lanes[name]
		if len(l.waiting) == 0 || ctx.Err() != nil {
			delete(d.lanes, name)
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		select {
		case d.slots <- struct{}{}:
		case <-ctx.Done():
			continue
		}
		if j, ok := d.next(l); ok {
			d.carryOn(ctx, j)
		}
		<-d.slots
	}
}

// carryOn runs a job, and takes it up again as the next process would while
// its steps cannot be journalled: a full disk is not for ever.
func (d *Dispatcher) carryOn(ctx context.Context, j job) {
	for failures := 1; ; failures++ {
		err := d.run(ctx, j)
		if err == nil || ctx.Err() != nil {
			return
		}
		d.Log.Error("command not carried on; trying again", "command", j.id, "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(d.Backoff(err, failures)):
		}
	}
}

// next takes the first job only when there is a slot for it, so that it can be
// superseded until then.
func (d *Dispatcher) next(l *lane) (j job, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(l.waiting) == 0 {
		return j, false
	}
	j, l.waiting = l.waiting[0], l.waiting[1:]
	return j, true
}

// run takes a job from its permit to its result.
func (d *Dispatcher) run(ctx context.Context, j job) error {
	e, err := d.Journal.Get(j.id)
	if err != nil || e == nil || e.Step != journal.Accepted && e.Step != journal.Started {
		return err
	}
	c, err := parse(e.Data)
	if err != nil {
		return err
	}
	allowed, err := d.permit(ctx, j, e)
	if err != nil || !allowed {
		return err
	}
	if e.Step == journal.Accepted && c.StartBy != nil && d.Clock().After(*c.StartBy) {
		return d.finish(j.id, api.Result{Status: api.OutcomeRejected, Reason: "too_late", Error: "it was to start by " + c.StartBy.Format(time.RFC3339)})
	}
	if e.Step == journal.Started {
		r, again := d.afterCrash(ctx, j, e)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !again {
			return d.finish(j.id, r)
		}
	}
	attempt, err := d.Journal.Start(j.id)
	if err != nil {
		return fmt.Errorf("journal start: %w", err)
	}
	fault.At("started")
	return d.carryOut(ctx, j, attempt)
}

// permit asks the ack again where it may no longer hold: this process has not
// asked it itself, or it is old. A machine that was restored from a snapshot
// must not run what has run (PROTOCOL.md section 6). The server not being
// reachable is waiting, for as long as it takes.
func (d *Dispatcher) permit(ctx context.Context, j job, e *journal.Entry) (bool, error) {
	if !j.resumed && d.Journal.Age(e.AcceptedAt) < api.PermitLife {
		return true, nil
	}
	for failures := 1; ; failures++ {
		allowed, err := d.askAgain(ctx, j.id, e)
		if err == nil {
			return allowed, nil
		}
		d.Log.Warn("waiting to ask whether a command may still run", "command", j.id, "err", err)
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(d.Backoff(err, failures)):
		}
	}
}

// askAgain is ask for what was accepted before. What has begun and may not go
// on has no result anybody could tell.
func (d *Dispatcher) askAgain(ctx context.Context, id string, e *journal.Entry) (bool, error) {
	allowed, err := d.ask(ctx, id)
	if err == nil && !allowed && e.Step == journal.Started {
		d.Event("command_interrupted", "command "+id+" had begun and may not go on")
	}
	return allowed, err
}

// afterCrash says what becomes of a command that was running when its agent
// died: again reports that it is to be run once more.
func (d *Dispatcher) afterCrash(ctx context.Context, j job, e *journal.Entry) (r api.Result, again bool) {
	if j.kind.AfterCrash() == api.Probe {
		output, done, err := d.look(ctx, j, e.StartedAt)
		switch {
		case err != nil:
			return d.interrupted(e, "the agent ended while it ran, and whether it took effect cannot be seen: "+err.Error()), false
		case done:
			return d.succeeded(output, e.StartedAt, e.Attempt), false
		}
	}
	switch {
	case j.kind.AfterCrash() == api.Never:
		return d.interrupted(e, "the agent ended while it ran"), false
	case e.Attempt >= maxAttempts:
		return d.interrupted(e, fmt.Sprintf("the agent ended %d times while it ran", e.Attempt)), false
	}
	return r, true
}

// interrupted is the result of what had begun and of which nobody can tell.
func (d *Dispatcher) interrupted(e *journal.Entry, why string) api.Result {
	return api.Result{
		Status: api.OutcomeUnknown, Reason: "interrupted", Error: why,
		StartedAt: &e.StartedAt, FinishedAt: d.moment(), Attempt: e.Attempt,
	}
}

// carryOut runs the handler. When the agent is told to stop meanwhile, nothing
// is said of the command: the next process looks.
func (d *Dispatcher) carryOut(ctx context.Context, j job, attempt int) error {
	started := d.moment()
	output, err := d.handle(ctx, j)
	switch {
	case err == nil:
		return d.finish(j.id, d.succeeded(output, *started, attempt))
	case ctx.Err() != nil:
		return ctx.Err()
	}
	r := api.Result{
		Status: api.OutcomeFailed, Error: err.Error(), StartedAt: started, FinishedAt: d.moment(), Attempt: attempt,
	}
	if problem, ok := errors.AsType[*api.Error](err); ok {
		r.Reason, r.Error = string(problem.Code), problem.Detail
	}
	return d.finish(j.id, r)
}

// handle runs the handler of a job.
func (d *Dispatcher) handle(ctx context.Context, j job) (output any, err error) {
	err = d.guard(ctx, j, func(ctx context.Context) (err error) {
		output, err = j.work.run(ctx)
		return err
	})
	return output, err
}

// look runs the probe of a job.
func (d *Dispatcher) look(ctx context.Context, j job, since time.Time) (output any, done bool, err error) {
	err = d.guard(ctx, j, func(ctx context.Context) (err error) {
		output, done, err = j.probe(ctx, since)
		return err
	})
	return output, done, err
}

// guard bounds what a kind does, and keeps its panic from being the agent's
// end: it is this command's failure.
func (d *Dispatcher) guard(ctx context.Context, j job, do func(context.Context) error) (err error) {
	bounded, cancel := context.WithTimeout(ctx, j.kind.Deadline())
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			d.Log.Error("handler panicked", "command", j.id, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("the agent has a bug in %s: %v", j.kind.Name(), p)
		}
	}()
	err = do(bounded)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		err = fmt.Errorf("it took longer than %v: %w", j.kind.Deadline(), err)
	}
	return err
}

func (d *Dispatcher) succeeded(output any, started time.Time, attempt int) api.Result {
	r := api.Result{Status: api.OutcomeSucceeded, StartedAt: &started, FinishedAt: d.moment(), Attempt: attempt}
	text, err := json.Marshal(output)
	if err != nil {
		d.Log.Error("output not encoded", "err", err)
		return r
	}
	r.Output = text
	return r
}

func (d *Dispatcher) moment() *time.Time {
	now := d.Clock().Round(0).UTC()
	return &now
}
