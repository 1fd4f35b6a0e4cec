// Package agent is the program on a node. It calls out; nothing calls it. Each
// loop does one thing, at its own pace: it beats, waits to be woken, fetches
// commands, sends results, reports what runs.
package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/app"
	"github.com/beckon-fleet/beckon/agent/internal/dispatch"
	"github.com/beckon-fleet/beckon/agent/internal/docker"
	"github.com/beckon-fleet/beckon/agent/internal/file"
	"github.com/beckon-fleet/beckon/agent/internal/journal"
	"github.com/beckon-fleet/beckon/agent/internal/link"
	"github.com/beckon-fleet/beckon/agent/internal/probe"
	"github.com/beckon-fleet/beckon/agent/internal/process"
	"github.com/beckon-fleet/beckon/agent/internal/state"
	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
)

// ErrNotJoined says that the state folder holds no identity.
var ErrNotJoined = errors.New("this machine has not joined; run the command that `beckon token create` prints")

// Agent is one node's agent.
type Agent struct {
	cfg        Config
	folder     *state.Folder
	journal    *journal.Journal
	link       *link.Link
	dispatcher *dispatch.Dispatcher
	apps       *app.Service
	capacity   api.HeartbeatRequest
	streamAt   time.Time   // from when a stream may be tried; of the watch loop alone, as the next three
	noStream   string      // why there is none
	briefs     int         // streams in a row that ended at once
	pollsFail  bool        // polls that wait do not come through
	vainAt     time.Time   // when a fetch last found nothing; of the commands loop alone
	renewAgain time.Time   // from when a renewal that failed may be tried again; of the heartbeat loop alone, as the next
	vainly     int         // renewals in a row that failed
	offBeat    bool        // the rhythm begins anew, at any part of the pace
	beatAt     time.Time   // when the next heartbeat is due; of the heartbeat loop alone
	silent     atomic.Bool // the last heartbeat had no answer
	beatNow    signal      // a heartbeat is due at once
	fetch      signal      // there may be commands
	results    signal      // there are results to send
	report     signal      // the server wants to know what runs
	recovered  broadcast

	mu       sync.Mutex
	identity *state.Identity
	keys     seal.Keys
	noticed  notes
	status   Status
}

// notes is what the loops tell each other.
type notes struct {
	fetched   int64             // the commands cursor of the last fetch
	helloDue  bool              // the next heartbeat says hello
	runtimes  map[string]string // what can run instances
	active    map[string]bool   // deployments that the server believes are here
	reported  map[string]api.DeploymentReport
	events    []api.EventReport // not reported yet
	wake      api.Wake          // how the agent is woken
	unsettled bool              // the newest identity has not worked yet
	beats     int64
}

// New opens the state folder of a node that has joined. Run ends it.
func New(cfg Config) (*Agent, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	folder, err := state.Open(cfg.State, cfg.Clock, cfg.Log)
	if err != nil {
		return nil, err
	}
	revoked, err := folder.Revoked()
	if err != nil {
		return nil, err
	}
	id, err := folder.Identity()
	if revoked.Ends(id) {
		return nil, api.Errorf(api.NodeRevoked, "this node was revoked; join again with a new token")
	}
	if err != nil {
		return nil, err
	}
	if id == nil {
		return nil, ErrNotJoined
	}
	now := cfg.Clock().UTC()
	a := &Agent{cfg: cfg, folder: folder, identity: id, offBeat: true, noticed: notes{
		helloDue: true, wake: api.Wake{Rung: rungInterval, Reason: "just started", Since: &now}, fetched: -1,
	}}
	if err := a.open(); err != nil {
		return nil, err
	}
	return a, nil
}

// open is who knows whom.
func (a *Agent) open() (err error) {
	if a.keys, err = a.identity.SigningKeys(); err != nil {
		return err
	}
	if a.capacity, err = probe.Capacity(a.cfg.State); err != nil {
		return err
	}
	pin, err := a.identity.Pin()
	if err != nil {
		return err
	}
	engine, err := docker.New(a.cfg.Docker)
	if err != nil {
		return err
	}
	if a.journal, err = journal.Open(a.folder.Path("journal.db"), a.cfg.Clock); err != nil {
		return err
	}
	if err := a.folder.Sweep(); err != nil { // the journal's lock says that we are alone
		return errors.Join(err, a.journal.Close())
	}
	if err := a.journal.Damage(); err != nil { // the new epoch tells the server what that means
		a.cfg.Log.Error("damaged journal put aside; what it held is not known any more", "err", err)
		a.noticed.events = append(a.noticed.events, api.EventReport{
			Kind: "journal_damaged", Message: api.Cut(err.Error(), api.MaxMessage), At: a.cfg.Clock().UTC(),
		})
	}
	certificate := a.identity.TLS()
	a.beatNow, a.fetch, a.results, a.report = newSignal(), newSignal(), newSignal(), newSignal()
	a.link = link.New(link.Config{
		Server: a.identity.Server, Version: a.cfg.Version, Instance: a.journal.Instance().String(),
		Clock: a.cfg.Clock, Dial: a.cfg.Dial, Wrap: a.cfg.Wrap,
	}, &certificate, pin)
	a.apps = app.New(app.Config{
		Node: a.identity.NodeID, Docker: engine, Trace: a.folder.Path("containers"),
		Process: process.New(process.Config{Dir: process.Folder(a.cfg.State), Log: a.cfg.Log}), Source: file.New(a.link),
		Clock: a.cfg.Clock, Log: a.cfg.Log,
	})
	a.dispatcher = dispatch.New(dispatch.Config{
		Node: a.identity.NodeID, Keys: a.signingKeys, Tier: a.identity.Tier, Journal: a.journal, Clock: a.link.Now, Log: a.cfg.Log,
		Ack: a.ack, Done: a.results.raise, Event: a.event, Backoff: link.Pause,
	})
	a.handlers()
	if missing := a.dispatcher.Missing(); len(missing) > 0 {
		return errors.Join(a.journal.Close(), fmt.Errorf("nothing carries out %v", missing))
	}
	return nil
}

// NodeID is which node this is.
func (a *Agent) NodeID() string { return a.identity.NodeID }

// Run works until ctx ends, which is no error, or the server says stop: then
// the error is api.NodeRevoked, and the next New says so without asking.
func (a *Agent) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer a.journal.Close()
	defer a.link.Close()
	if err := a.dispatcher.Resume(ctx); err != nil {
		return err
	}
	a.results.raise() // what an earlier process could not send
	var wg sync.WaitGroup
	for _, l := range []loop{
		{name: "heartbeat", step: a.heartbeat, wake: a.beatNow},
		{name: "watch", step: a.watch},
		{name: "commands", step: a.commands, wake: a.fetch},
		{name: "results", step: a.sendResults, wake: a.results},
		{name: "report", step: a.observe, wake: a.report},
		{name: "keep", step: a.keep},
	} {
		wg.Go(func() { a.repeat(ctx, stop, l) })
	}
	wg.Wait()
	a.dispatcher.Wait()
	if err := context.Cause(ctx); errors.Is(err, api.NodeRevoked) {
		return errors.Join(err, a.folder.Revoke(a.identity.NodeID))
	}
	return nil
}

// loop is a step that is done again and again: after the pause that it returns,
// or when it is woken.
type loop struct {
	name string
	step func(context.Context) (time.Duration, error)
	wake signal
}

// repeat does a loop's step until ctx ends. What went wrong decides the pause.
func (a *Agent) repeat(ctx context.Context, stop context.CancelCauseFunc, l loop) {
	for failures := 0; ctx.Err() == nil; {
		news := a.recovered.wait() // also of what happens during the step
		pause, err := l.step(ctx)
		if ctx.Err() != nil {
			return
		}
		wake, recovered := l.wake, (<-chan struct{})(nil)
		if err == nil {
			if failures > 0 {
				a.cfg.Log.Info("recovered", "loop", l.name, "after_failures", failures)
				a.recovered.send() // the others need not wait out their pauses
			}
			failures = 0
		} else {
			failures++
			pause, wake, recovered = link.Pause(err, failures), nil, news
			switch {
			case l.name == "heartbeat":
				a.tell(err)
			case askedForAll(err):
				pause = time.Hour
			case a.silent.Load():
				pause += link.Ceiling // that loop finds out first
			default:
				a.tell(err)
			}
			a.failed(stop, l.name, failures, pause, err)
		}
		select {
		case <-ctx.Done():
		case <-wake:
		case <-recovered:
			rest(ctx, rand.N(comeBack))
		case <-time.After(pause):
		}
	}
}

// rest waits, at most until ctx ends.
func rest(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

// askedForAll reports whether one loop, that of the heartbeat, asks again for
// all: its success is everybody's.
func askedForAll(err error) bool {
	return errors.Is(err, api.UpgradeRequired) || errors.Is(err, api.CertificateExpired)
}

func (a *Agent) failed(stop context.CancelCauseFunc, name string, failures int, pause time.Duration, err error) {
	problem, ours := errors.AsType[*api.Error](err)
	switch {
	case ours && problem.Next() == api.ThenStop:
		a.cfg.Log.Error("the control plane shut this node out", "err", err)
		stop(err)
	case ours && problem.Next() == api.ThenSlow:
		a.cfg.Log.Error("the control plane refuses; slowing down", "loop", name, "next_try_in", pause.String(), "err", err)
	case failures == 1 || failures%10 == 0:
		a.cfg.Log.Warn("no answer; trying again", "loop", name, "failures", failures, "next_try_in", pause.Round(time.Second).String(), "err", err)
	}
}

// signal wakes one loop; many raises before it looks are one.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) raise() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// broadcast wakes everybody who waits at the moment.
type broadcast struct {
	mu sync.Mutex
	c  chan struct{}
}

func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

func (b *broadcast) send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}
