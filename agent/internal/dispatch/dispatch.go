// Package dispatch takes commands through their life on the node (PROTOCOL.md
// section 6): verified, journalled, acked, run, their result kept. Those of one
// lane run in order, lanes side by side, so that a slow deploy of one app never
// holds up another's stop.
package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/journal"
	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
	"github.com/beckon-fleet/beckon/internal/fault"
)

const (
	maxLanes = 8  // how many commands run side by side; the others wait
	maxID    = 64 // characters of a command's id
)

// Config is what a dispatcher works with.
type Config struct {
	Node    string
	Keys    func() seal.Keys
	Tier    *int // the ceiling of this install; nil allows all
	Journal *journal.Journal
	Clock   func() time.Time // the server's time, as well as it is known
	Log     *slog.Logger
	Ack     func(ctx context.Context, id string) error
	Done    func() // a result is in the journal
	Event   func(kind, message string)
	Backoff func(err error, failures int) time.Duration // after a failure, before the next try
}

// Dispatcher runs commands.
type Dispatcher struct {
	Config
	kinds map[string]handler

	mu    sync.Mutex
	lanes map[string]*lane
	slots chan struct{}
	wg    sync.WaitGroup
}

// handler is a kind with what carries it out.
type handler struct {
	api.AnyKind
	// prepare checks a payload and says in which lane it runs, and how.
	prepare func(payload json.RawMessage) (lane string, do work, err error)
}

// work is a handler and a probe that have their payload. The probe looks
// whether the effect of an interrupted run is there.
type work struct {
	kind    api.AnyKind
	resumed bool // accepted or begun by an earlier process
	run     func(context.Context) (any, error)
	probe   func(ctx context.Context, since time.Time) (output any, done bool, err error)
}

// New returns a dispatcher without handlers.
func New(c Config) *Dispatcher {
	return &Dispatcher{Config: c, kinds: map[string]handler{}, lanes: map[string]*lane{}, slots: make(chan struct{}, maxLanes)}
}

// A Probe looks whether what a command was to do has happened since.
type Probe[P api.Payload, R any] func(ctx context.Context, p P, since time.Time) (R, bool, error)

// On carries out commands of kind k with do. A kind that is probed after a
// crash needs the probe.
func On[P api.Payload, R any](d *Dispatcher, k api.Kind[P, R], do func(context.Context, P) (R, error), probe ...Probe[P, R]) {
	if k.AfterCrash() == api.Probe && len(probe) == 0 {
		return // Missing names it
	}
	d.kinds[k.Name()] = handler{k, func(payload json.RawMessage) (string, work, error) {
		p, err := k.Parse(payload) // again: the server is not trusted
		if err != nil {
			return "", work{}, err
		}
		w := work{run: func(ctx context.Context) (any, error) { return do(ctx, p) }}
		if len(probe) > 0 {
			w.probe = func(ctx context.Context, since time.Time) (any, bool, error) { return probe[0](ctx, p, since) }
		}
		return k.Lane(p), w, nil
	}}
}

// Missing names the kinds that nothing carries out.
func (d *Dispatcher) Missing() (names []string) {
	for _, k := range api.Kinds {
		if d.kinds[k.Name()].prepare == nil {
			names = append(names, k.Name())
		}
	}
	return names
}

// Take journals items one by one, so that a bad one never blocks the next, and
// then lets in what the server allows. An error means that the server could
// not be asked; the rest is asked for with the next Take.
func (d *Dispatcher) Take(ctx context.Context, items []json.RawMessage) error {
	for _, raw := range items {
		c, item, err := d.open(raw)
		if err != nil {
			// It has no id that could be believed, so nothing is said of one: the
			// real command, if there is one, ends by itself.
			d.Log.Error("command not verified", "seq", item.Seq, "err", err)
			d.Event("command_not_verified", err.Error())
			continue
		}
		known, err := d.Journal.Receive(c.ID, item.Seq, item.Data)
		if err != nil {
			return fmt.Errorf("journal command: %w", err)
		}
		if known == nil {
			fault.At("journalled")
			continue
		}
		if err := d.again(known, item); err != nil {
			return err
		}
	}
	return d.admit(ctx)
}

// again is for a command that the journal has already. The server would not
// send one that it knows to have ended, so it gets that one's result again.
func (d *Dispatcher) again(known *journal.Entry, item api.CommandItem) error {
	if known.Data != item.Data {
		d.Log.Error("command came again with other content", "command", known.ID)
		d.Event("command_differs", fmt.Sprintf("command %s came again with other content and was refused", known.ID))
		return nil
	}
	wanted, err := d.Journal.Want([]string{known.ID})
	if err != nil {
		return fmt.Errorf("journal command: %w", err)
	}
	if wanted {
		d.Done()
	}
	return nil
}

// open verifies before it reads.
func (d *Dispatcher) open(raw json.RawMessage) (c api.Command, item api.CommandItem, err error) {
	if err := json.Unmarshal(raw, &item); err != nil {
		return c, item, fmt.Errorf("read item: %w", err)
	}
	if err := seal.Verify(item.Envelope, seal.TagCommand, d.Node, d.Keys()); err != nil {
		return c, item, err
	}
	c, err = parse(item.Data)
	return c, item, err
}

func parse(data string) (c api.Command, err error) {
	if err := json.Unmarshal([]byte(data), &c); err != nil {
		return c, fmt.Errorf("read command: %w", err)
	}
	if c.ID == "" || len(c.ID) > maxID {
		return c, fmt.Errorf("read command: its id has %d characters, not 1 to %d", len(c.ID), maxID)
	}
	return c, nil
}

// admit asks for what was received and lets it into its lane. A server that
// fails at one command holds up that one's lane, and no other.
func (d *Dispatcher) admit(ctx context.Context) error {
	waiting, err := d.Journal.In(journal.Received)
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	held := map[string]error{}
	for _, e := range waiting {
		name, w, err := d.judge(e)
		if err != nil {
			if err := d.reject(e, err); err != nil {
				return err
			}
			continue
		}
		if held[name] != nil {
			continue
		}
		allowed, err := d.ask(ctx, e.ID)
		switch {
		case errors.Is(err, api.Internal):
			held[name] = err
		case err != nil:
			return err
		case allowed:
			d.enter(ctx, name, job{e.ID, w})
		}
	}
	return errors.Join(slices.Collect(maps.Values(held))...)
}

// judge says whether the agent may run a command at all.
func (d *Dispatcher) judge(e journal.Entry) (lane string, w work, err error) {
	c, err := parse(e.Data)
	if err != nil {
		return "", w, err
	}
	h, ok := d.kinds[c.Kind]
	switch {
	case !ok:
		return "", w, api.Errorf(api.Invalid, "this agent has no kind %q", c.Kind)
	case d.Tier != nil && *d.Tier < int(h.Tier()):
		return "", w, api.Errorf(api.TierTooLow, "this node was installed with tier %d, and %s needs %d", *d.Tier, c.Kind, h.Tier())
	case c.ExpiresAt.IsZero():
		return "", w, api.Errorf(api.Invalid, "the command says no expires_at")
	case len(c.Payload) > api.MaxDocument:
		return "", w, api.Errorf(api.TooLarge, "the payload has %d bytes; %d is the most", len(c.Payload), api.MaxDocument)
	}
	lane, w, err = h.prepare(c.Payload)
	w.kind = h.AnyKind
	return lane, w, err
}

// ask acks a command: the commit point. Refused is for good; an error means
// that there was no answer of the server's.
func (d *Dispatcher) ask(ctx context.Context, id string) (allowed bool, err error) {
	err = d.Ack(ctx, id)
	if err == nil {
		if err := d.Journal.Accept(id); err != nil {
			return false, fmt.Errorf("journal ack: %w", err)
		}
		fault.At("acked")
		return true, nil
	}
	problem, ok := errors.AsType[*api.Error](err)
	if !ok || problem.Next() != api.ThenGiveUp {
		return false, err
	}
	d.Log.Info("command must not run", "command", id, "code", problem.Code)
	return false, d.Journal.Refuse(id, string(problem.Code))
}

// reject ends what the agent may not run. What an earlier process had begun is
// not said to have never run.
func (d *Dispatcher) reject(e journal.Entry, cause error) error {
	problem := api.AsError(cause)
	if e.Step == journal.Started {
		return d.finish(e.ID, d.interrupted(&e, "the agent ended while it ran, and may not go on with it: "+problem.Detail))
	}
	return d.finish(e.ID, api.Result{Status: api.OutcomeRejected, Reason: string(problem.Code), Error: problem.Detail})
}

// finish keeps a result, cut to what the server takes. What is no UTF-8 is
// mended before: JSON would do so later, and make it longer.
func (d *Dispatcher) finish(id string, r api.Result) error {
	r.Error = api.Cut(strings.ToValidUTF8(r.Error, "\uFFFD"), api.MaxMessage)
	if len(r.Output) > api.MaxOutput {
		r.Output = nil
	}
	if err := d.Journal.Finish(id, r); err != nil {
		return fmt.Errorf("journal result: %w", err)
	}
	fault.At("finished")
	d.Done()
	return nil
}

// Resume takes up what an earlier process had accepted or begun.
func (d *Dispatcher) Resume(ctx context.Context) error {
	open, err := d.Journal.In(journal.Accepted, journal.Started)
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	for _, e := range open {
		name, w, err := d.judge(e)
		if err != nil {
			if err := d.reject(e, err); err != nil {
				return err
			}
			continue
		}
		w.resumed = true
		d.enter(ctx, name, job{e.ID, w})
	}
	return nil
}

// Wait returns when all that was let in has ended.
func (d *Dispatcher) Wait() { d.wg.Wait() }

// Idle reports whether nothing is running or waiting to run.
func (d *Dispatcher) Idle() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.lanes) == 0
}
