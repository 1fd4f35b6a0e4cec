package dispatch_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/dispatch"
	"github.com/beckon-fleet/beckon/agent/internal/journal"
	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
)

// rig is a dispatcher on a real journal, with a control plane that answers and
// handlers that do what a test wants.
type rig struct {
	*dispatch.Dispatcher
	t       *testing.T
	journal *journal.Journal
	path    string
	ctx     context.Context
	stop    context.CancelFunc
	signer  seal.Signer
	seq     int64
	tier    *int
	without string // a kind that this agent does not have

	answer func(id string) error                                    // to an ack; nil is yes
	handle func(ctx context.Context, app string) ([]string, error)  // app is the name in the payload
	look   func(ctx context.Context, since time.Time) (bool, error) // the probe of restart

	mu     sync.Mutex
	asked  []string // ids
	ran    []string // apps, in the order in which their handlers began
	events []string
	done   int
}

// bubble runs do with a rig under fake time.
func bubble(t *testing.T, do func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, filepath.Join(t.TempDir(), "journal.db"))
		r.start()
		defer r.end()
		do(r)
	})
}

func newRig(t *testing.T, path string) *rig {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{
		t: t, path: path, signer: seal.Signer{ID: seal.KeyID(private.Public().(ed25519.PublicKey)), Private: private},
		answer: func(string) error { return nil },
		handle: func(context.Context, string) ([]string, error) { return nil, nil },
		look:   func(context.Context, time.Time) (bool, error) { return false, nil },
	}
}

// start is a start of the agent, up to where it would fetch.
func (r *rig) start() {
	r.t.Helper()
	var err error
	if r.journal, err = journal.Open(r.path, time.Now); err != nil {
		r.t.Fatal(err)
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.Dispatcher = dispatch.New(dispatch.Config{
		Node: "node_1", Keys: r.keys, Tier: r.tier, Journal: r.journal, Clock: time.Now, Log: slog.New(slog.DiscardHandler),
		Ack: r.ack, Done: func() { r.note(func() { r.done++ }) },
		Event:   func(kind, message string) { r.note(func() { r.events = append(r.events, kind+": "+message) }) },
		Backoff: func(_ error, failures int) time.Duration { return time.Duration(failures) * time.Second },
	})
	r.handlers()
	if err := r.Resume(r.ctx); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) handlers() {
	d := r.Dispatcher
	if r.without != "deploy" {
		dispatch.On(d, api.Deploy, func(ctx context.Context, p api.DeployPayload) (res api.DeployResult, err error) {
			_, err = r.run(ctx, p.App)
			return res, err
		})
	}
	if r.without != "stop" {
		dispatch.On(d, api.Stop, func(ctx context.Context, p api.StopPayload) (res api.StopResult, err error) {
			res.DeploymentIDs, err = r.run(ctx, p.App)
			return res, err
		})
	}
	dispatch.On(d, api.Restart, func(ctx context.Context, p api.RestartPayload) (res api.RestartResult, err error) {
		_, err = r.run(ctx, p.App)
		return res, err
	}, func(ctx context.Context, _ api.RestartPayload, since time.Time) (api.RestartResult, bool, error) {
		done, err := r.look(ctx, since)
		return api.RestartResult{DeploymentID: "seen"}, done, err
	})
	dispatch.On(d, api.Remove, func(ctx context.Context, p api.RemovePayload) (res api.RemoveResult, err error) {
		_, err = r.run(ctx, p.App)
		return res, err
	})
}

func (r *rig) run(ctx context.Context, app string) ([]string, error) {
	r.note(func() { r.ran = append(r.ran, app) })
	return r.handle(ctx, app)
}

func (r *rig) ack(_ context.Context, id string) error {
	var answer func(string) error
	r.note(func() {
		r.asked = append(r.asked, id)
		answer = r.answer
	})
	return answer(id)
}

// answers has the control plane answer differently from now on.
func (r *rig) answers(answer func(id string) error) { r.note(func() { r.answer = answer }) }

func (r *rig) keys() seal.Keys {
	return seal.Keys{r.signer.ID: r.signer.Private.Public().(ed25519.PublicKey)}
}

func (r *rig) note(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

// end is a shutdown: handlers are told, and their commands stay begun. A kill
// leaves the same journal.
func (r *rig) end() {
	r.t.Helper()
	r.stop()
	r.Wait()
	if err := r.journal.Close(); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) restart() {
	r.t.Helper()
	r.end()
	r.start()
}

// take gives the dispatcher what was fetched, and expects that the control
// plane could be asked.
func (r *rig) take(items ...json.RawMessage) {
	r.t.Helper()
	if err := r.Take(r.ctx, items); err != nil {
		r.t.Fatal(err)
	}
}

// sign makes an item of a document for a node.
func (r *rig) sign(node, document string) json.RawMessage {
	r.t.Helper()
	r.seq++
	item, err := json.Marshal(api.CommandItem{Envelope: r.signer.Sign(seal.TagCommand, node, r.seq, []byte(document)), State: api.Delivered})
	if err != nil {
		r.t.Fatal(err)
	}
	return item
}

// command is a document.
func (r *rig) command(id, kind, payload string) api.Command {
	return api.Command{
		ID: id, Kind: kind, CreatedAt: time.Now(), ExpiresAt: time.Now().Add(api.CommandLife), Payload: json.RawMessage(payload),
	}
}

func (r *rig) item(c api.Command) json.RawMessage {
	r.t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.sign("node_1", string(text))
}

// stopOf is an item: stop app in the lane.
func (r *rig) stopOf(id, lane, app string) json.RawMessage {
	r.t.Helper()
	return r.item(r.command(id, "stop", names(lane, app)))
}

func names(lane, app string) string { return fmt.Sprintf(`{"app_id": %q, "app": %q}`, lane, app) }

func (r *rig) restartOf(id, lane, app string) json.RawMessage {
	r.t.Helper()
	return r.item(r.command(id, "restart", names(lane, app)))
}

func (r *rig) deployOf(id, lane, app string) json.RawMessage {
	r.t.Helper()
	return r.item(r.command(id, "deploy", deployment(lane, app)))
}

func deployment(lane, app string) string {
	return fmt.Sprintf(`{"deployment_id": "dep_1", "revision": 1, "image": "x", "app_id": %q, "app": %q}`, lane, app)
}

func (r *rig) entry(id string) *journal.Entry {
	r.t.Helper()
	e, err := r.journal.Get(id)
	if err != nil {
		r.t.Fatal(err)
	}
	return e
}

// ended wants a command to have this result, and returns it.
func (r *rig) ended(id string, status api.Outcome, reason string) api.Result {
	r.t.Helper()
	e := r.entry(id)
	if e == nil || e.Result == nil {
		r.t.Errorf("%s has no result: %.200s", id, fmt.Sprintf("%+v", e))
		return api.Result{}
	}
	if err := (api.ResultRequest{ID: id, Result: *e.Result}).Validate(); err != nil {
		r.t.Errorf("the server would refuse the result of %s: %v", id, err)
	}
	if e.Result.Status != status || e.Result.Reason != reason {
		r.t.Errorf("%s ended as %s %q (%s), want %s %q", id, e.Result.Status, e.Result.Reason, e.Result.Error, status, reason)
	}
	return *e.Result
}

// at wants a command to be at a step.
func (r *rig) at(id string, want journal.Step) {
	r.t.Helper()
	if e := r.entry(id); e == nil || e.Step != want {
		r.t.Errorf("%s is %.200s, want %s", id, fmt.Sprintf("%+v", e), want)
	}
}

// saw wants exactly these apps to have been begun, in this order.
func (r *rig) saw(want ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.ran, want) {
		r.t.Errorf("begun were %v, want %v", r.ran, want)
	}
}

// noticed wants one event of this kind with these words, and forgets all.
func (r *rig) noticed(kind string, words ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) != 1 || !strings.HasPrefix(r.events[0], kind+": ") {
		r.t.Errorf("events are %q, want one %s", r.events, kind)
	} else {
		for _, word := range words {
			if !strings.Contains(r.events[0], word) {
				r.t.Errorf("the event %q does not say %q", r.events[0], word)
			}
		}
	}
	r.events = nil
}

// slowly is a handler that takes a minute.
func (r *rig) slowly(ctx context.Context, _ string) ([]string, error) {
	return nil, sleep(ctx, time.Minute)
}

// sleep is a handler that takes so long, unless it is told to stop.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
