package dispatch_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/dispatch"
	"github.com/beckon-fleet/beckon/agent/internal/journal"
	"github.com/beckon-fleet/beckon/api"
	"pgregory.net/rapid"
)

// A plan is a fleet's bad day: what an operator sends, when the agent dies, and
// which answers get lost.
type plan struct {
	commands []planned
	crashes  []int // after so many points of a life
	losses   []loss
	cancels  []int // a command, at each tick
}

type planned struct {
	kind api.AnyKind
	lane string
	tick int           // when it is sent
	took time.Duration // by its handler
}

// loss is what becomes of a request to the control plane.
type loss int

const (
	answered     loss = iota
	neverArrived      // the control plane has not seen it
	answerLost        // the control plane has, and the agent does not know
	serverFailed      // it says 500 and has done nothing
)

// kinds are all that a life carries out.
var kinds = []api.AnyKind{api.Deploy, api.Restart, api.Stop, api.Remove}

func drawPlan(rt *rapid.T) plan {
	command := rapid.Custom(func(t *rapid.T) planned {
		return planned{
			kind: rapid.SampledFrom(kinds).Draw(t, "kind"), lane: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "lane"),
			tick: rapid.IntRange(0, 6).Draw(t, "tick"), took: time.Duration(rapid.IntRange(1, 90_000).Draw(t, "took_ms")) * time.Millisecond,
		}
	})
	return plan{
		commands: rapid.SliceOfN(command, 1, 8).Draw(rt, "commands"),
		crashes:  rapid.SliceOfN(rapid.IntRange(1, 12), 0, 6).Draw(rt, "crashes"),
		losses:   rapid.SliceOfN(rapid.SampledFrom([]loss{answered, answered, neverArrived, answerLost, serverFailed}), 0, 12).Draw(rt, "losses"),
		cancels:  rapid.SliceOfN(rapid.IntRange(-1, 7), 0, 6).Draw(rt, "cancels"),
	}
}

// life is one process of the agent. At a crash its journal is closed under it:
// what it does from then on leaves no trace.
type life struct {
	*world
	*dispatch.Dispatcher
	journal *journal.Journal
	ctx     context.Context
	kill    context.CancelFunc
	points  int // until it dies; below 0 it does not
}

var errDead = errors.New("this process is dead")

// point is a place where a process may die; it reports whether it has.
func (l *life) point() error {
	l.lock.Lock()
	l.points--
	crash := l.points == 0
	l.lock.Unlock()
	if crash {
		l.kill()
		if err := l.journal.Close(); err != nil {
			return err
		}
	}
	return l.dead()
}

func (l *life) dead() error {
	if l.ctx.Err() != nil {
		return errDead
	}
	return nil
}

func (w *world) born(n int) (*life, error) {
	j, err := journal.Open(w.path, time.Now)
	if err != nil {
		return nil, err
	}
	l := &life{world: w, journal: j, points: -1}
	if n < len(w.plan.crashes) {
		l.points = w.plan.crashes[n]
	}
	l.ctx, l.kill = context.WithCancel(context.Background())
	l.Dispatcher = dispatch.New(dispatch.Config{
		Node: "node_1", Keys: w.keys, Journal: j, Clock: time.Now, Log: slog.New(slog.DiscardHandler),
		Ack: l.ack, Done: func() { l.point() }, Event: func(string, string) {},
		Backoff: func(error, int) time.Duration { return time.Second },
	})
	dispatch.On(l.Dispatcher, api.Deploy, func(ctx context.Context, p api.DeployPayload) (res api.DeployResult, err error) {
		return res, l.work(ctx, p.App)
	})
	dispatch.On(l.Dispatcher, api.Stop, func(ctx context.Context, p api.StopPayload) (res api.StopResult, err error) {
		return res, l.work(ctx, p.App)
	})
	dispatch.On(l.Dispatcher, api.Remove, func(ctx context.Context, p api.RemovePayload) (res api.RemoveResult, err error) {
		return res, l.work(ctx, p.App)
	})
	dispatch.On(l.Dispatcher, api.Restart, func(ctx context.Context, p api.RestartPayload) (res api.RestartResult, err error) {
		return res, l.work(ctx, p.App)
	}, l.look)
	return l, nil
}

// ack asks the control plane; the process may die before and after.
func (l *life) ack(_ context.Context, id string) error {
	if err := l.point(); err != nil {
		return err
	}
	err := l.accept(id)
	return errors.Join(err, l.point())
}

// of is the command of an app: each has its own.
func (l *life) of(app string) *sent { return l.named("cmd_" + strings.TrimPrefix(app, "app-")) }

// work is every handler: it takes its time, and has an effect unless its
// process died before.
func (l *life) work(ctx context.Context, app string) error {
	l.lock.Lock()
	c := l.of(app)
	c.attempts++
	if last, ok := l.begun[c.lane]; ok && last > l.order(c) {
		l.fault("%s was begun after a later one of its lane", c.id)
	}
	l.begun[c.lane] = l.order(c)
	if c.state != api.Acked {
		l.fault("%s runs and is %s", c.id, c.state)
	}
	l.lock.Unlock()
	if err := errors.Join(l.point(), sleep(ctx, c.took)); err != nil {
		return err
	}
	l.lock.Lock()
	if l.dead() == nil {
		c.effects = append(c.effects, time.Now())
	}
	l.lock.Unlock()
	return l.point()
}

// order is a command's place in the order of seq.
func (l *life) order(c *sent) int {
	for i, one := range l.commands {
		if one == c {
			return i
		}
	}
	return -1
}

func (l *life) look(_ context.Context, p api.RestartPayload, since time.Time) (res api.RestartResult, done bool, err error) {
	if err := l.point(); err != nil {
		return res, false, err
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	for _, at := range l.of(p.App).effects {
		done = done || at.After(since)
	}
	return res, done, nil
}

// live is a process from its start to its death, or until all has ended.
func (l *life) live() error {
	defer l.Wait()
	defer l.kill()
	if err := l.Resume(l.ctx); err != nil && l.dead() == nil {
		return err
	}
	for ticks := 0; !l.over() && l.dead() == nil; ticks++ {
		if ticks > 1000 {
			return errors.New("it does not end")
		}
		l.advance()
		err := l.Take(l.ctx, l.list())
		if err != nil && l.dead() == nil && !errors.Is(err, errNoAnswer) && !errors.Is(err, api.Internal) {
			return err
		}
		if err := l.send(); err != nil && l.dead() == nil {
			return err
		}
		if err := sleep(l.ctx, 10*time.Second); err != nil {
			break
		}
	}
	return nil
}

// send sends what has no answer yet.
func (l *life) send() error {
	unsent, err := l.journal.In(journal.Finished)
	for _, e := range unsent {
		if l.takeResult(e.ID, *e.Result) {
			err = errors.Join(err, l.journal.Confirm(e.ID))
		}
	}
	return errors.Join(err, l.journal.Sweep())
}

// check is what must be true in the end.
func (w *world) check() error {
	for _, c := range w.commands {
		never := c.state.NeverRan()
		probed := c.kind.AfterCrash() == api.Probe
		switch {
		case never && (c.attempts > 0 || len(c.effects) > 0):
			w.fault("%s has never run, and had %d attempts", c.id, c.attempts)
		case c.attempts > 3:
			w.fault("%s had %d attempts", c.id, c.attempts)
		case probed && len(c.effects) > 1:
			w.fault("%s took effect %d times", c.id, len(c.effects))
		case c.state == api.Succeeded && len(c.effects) == 0:
			w.fault("%s succeeded without an effect", c.id)
		case c.state == api.Lost && c.result.Attempt != 3:
			w.fault("%s was given up after %d attempts", c.id, c.result.Attempt)
		case c.state == api.Superseded && !c.kind.Supersedes():
			w.fault("%s gave way", c.id)
		case c.state == api.Failed:
			w.fault("%s failed: %s", c.id, c.result.Error)
		}
	}
	return w.wrong
}

// Whatever is sent, whenever the agent dies and whichever answers get lost:
// what ran was acked, what takes effect once takes effect once, nothing is begun
// more than three times, each lane keeps its order, and everything ends.
func TestNothingIsLostOrRunsTwice(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		var err error
		synctest.Test(t, func(t *testing.T) {
			w := &world{rig: newRig(t, filepath.Join(dir, "journal.db")), plan: p, begun: map[string]int{}}
			err = w.run()
		})
		if err := errors.Join(err, os.Remove(filepath.Join(dir, "journal.db"))); err != nil {
			rt.Fatal(err)
		}
	})
}

func (w *world) run() error {
	for n := 0; !w.over(); n++ {
		l, err := w.born(n)
		if err != nil {
			return err
		}
		if err := errors.Join(l.live(), l.journal.Close()); err != nil {
			return err
		}
	}
	return w.check()
}
