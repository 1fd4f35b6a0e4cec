package dispatch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

// world is a control plane that remembers everything, and the node's effects,
// which outlive its agent.
type world struct {
	*rig // signs
	plan plan
	tick int

	lock     sync.Mutex
	commands []*sent
	asked    int            // requests so far
	begun    map[string]int // by lane: the last command that was begun
	wrong    error
}

// sent is a command, by its place in the plan.
type sent struct {
	planned
	n        int
	id       string
	item     json.RawMessage
	state    api.State
	result   *api.Result
	attempts int
	effects  []time.Time
}

func (w *world) fault(format string, args ...any) {
	w.wrong = errors.Join(w.wrong, fmt.Errorf(format, args...))
}

// next is what becomes of the next request.
func (w *world) next() (l loss) {
	if w.asked < len(w.plan.losses) {
		l = w.plan.losses[w.asked]
	}
	w.asked++
	return l
}

// advance sends what is due and cancels.
func (w *world) advance() {
	w.lock.Lock()
	defer w.lock.Unlock()
	for n, p := range w.plan.commands {
		if p.tick != w.tick {
			continue
		}
		id, payload := fmt.Sprintf("cmd_%d", n), names(p.lane, fmt.Sprintf("app-%d", n))
		if p.kind.Name() == "deploy" {
			payload = deployment(p.lane, fmt.Sprintf("app-%d", n))
		}
		w.commands = append(w.commands, &sent{planned: p, n: n, id: id, state: api.Queued, item: w.item(w.command(id, p.kind.Name(), payload))})
	}
	if w.tick < len(w.plan.cancels) {
		for _, c := range w.commands {
			if c.n == w.plan.cancels[w.tick] && c.state == api.Queued {
				c.state = api.Canceled
			}
		}
	}
	w.tick++
}

// list is a fetch: what was never acked, and now and then all there is.
func (w *world) list() (items []json.RawMessage) {
	w.lock.Lock()
	defer w.lock.Unlock()
	for _, c := range w.commands {
		if c.state == api.Queued || w.tick%3 == 0 {
			items = append(items, c.item)
		}
	}
	return items
}

func (w *world) named(id string) *sent {
	for _, c := range w.commands {
		if c.id == id {
			return c
		}
	}
	return nil
}

func (w *world) accept(id string) error {
	w.lock.Lock()
	defer w.lock.Unlock()
	l := w.next()
	switch l {
	case neverArrived:
		return errNoAnswer
	case serverFailed:
		return api.Errorf(api.Internal, "once")
	}
	switch c := w.named(id); c.state {
	case api.Queued, api.Acked:
		c.state = api.Acked
	case api.Canceled:
		return api.Errorf(api.CommandCanceled, "canceled")
	default:
		return api.Errorf(api.CommandFinished, "finished")
	}
	if l == answerLost {
		return errNoAnswer
	}
	return nil
}

// takeResult stores a result that is sent; it reports whether the agent learns that it
// was stored.
func (w *world) takeResult(id string, r api.Result) bool {
	w.lock.Lock()
	defer w.lock.Unlock()
	l := w.next()
	if l == neverArrived || l == serverFailed {
		return false
	}
	c := w.named(id)
	switch {
	case c.result == nil && c.state != api.Acked:
		w.fault("%s has the result %s and is %s", id, r.Status, c.state)
	case c.result == nil:
		c.state, c.result = r.Status.State(), &r
	case c.result.Status != r.Status:
		w.fault("%s ended as %s and then as %s", id, c.result.Status, r.Status)
	}
	return l != answerLost
}

func (w *world) over() bool {
	w.lock.Lock()
	defer w.lock.Unlock()
	for _, c := range w.commands {
		if !c.state.Ended() {
			return false
		}
	}
	return len(w.commands) == len(w.plan.commands)
}
