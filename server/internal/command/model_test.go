package command_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/servertest"
	"github.com/beckon-fleet/beckon/server/internal/store"
	"pgregory.net/rapid"
)

// model is what a node's queue must do, said once more and in another way.
type model struct {
	t      *testing.T
	f      *servertest.Fleet
	agents []*servertest.Agent // processes of the node, and one of another node
	epoch  string              // of the journal that beat last
	node   bool                // it is not revoked
	all    []*modelled
}

// modelled is one command of it.
type modelled struct {
	id      string
	state   api.State
	expires time.Time
	by      api.Instance
	result  string // the first one
	late    string
	told    bool // some agent heard yes to an ack
	events  []string
}

func (c *modelled) to(s api.State) {
	c.state = s
	c.events = append(c.events, "command_"+string(s))
}

// processes says who may speak: the one that acks first, its later start, its
// twin at the same start, an earlier start, another journal, a nameless one,
// and a process of another node.
func processes(a, other *servertest.Agent) []*servertest.Agent {
	nameless := a.As("", 0, "")
	nameless.Instance = api.Instance{}
	return []*servertest.Agent{a.As("e1", 2, "r2"), a.As("e1", 3, "r3"), a.As("e1", 2, "twin"), a.As("e1", 1, "r1"), a.As("e2", 1, "r4"), nameless, other}
}

func TestLifeOfACommand(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		other := f.Join(t, "other")
		rapid.Check(t, func(rt *rapid.T) {
			m := &model{t: t, f: f, node: true}
			m.agents = processes(f.JoinAs(t, api.CreateJoinTokenRequest{}, api.JoinRequest{}), other)
			rt.Repeat(map[string]func(*rapid.T){
				"enqueue": m.enqueue, "fetch": m.fetch, "ack": m.ack, "ack ": m.ack, "result": m.result, "result ": m.result,
				"cancel": m.cancel, "wait": m.wait, "expire": m.expire, "beat": m.beat, "revoke": m.revoke,
				"": m.check,
			})
			m.checkEvents(rt)
		})
	})
}

// mine says whether a speaks for the node of the model.
func (m *model) mine(a *servertest.Agent) bool { return a.ID == m.agents[0].ID }

func (m *model) agent(t *rapid.T) *servertest.Agent {
	return rapid.SampledFrom(m.agents).Draw(t, "agent")
}

func (m *model) pick(t *rapid.T) *modelled {
	if len(m.all) == 0 {
		t.Skip("no command yet")
	}
	return rapid.SampledFrom(m.all).Draw(t, "command")
}

func (m *model) enqueue(t *rapid.T) {
	life := rapid.IntRange(1, 3).Draw(t, "life")
	res, err := m.f.Commands.Send(t.Context(), api.SendCommandRequest{
		Node: m.agents[0].ID, Kind: "stop", Payload: json.RawMessage(`{"app_id": "app_1", "app": "web"}`), ExpiresInS: life,
	})
	if !m.node {
		want(t, "enqueue", err, api.NodeInactive)
		return
	}
	want(t, "enqueue", err, "")
	m.all = append(m.all, &modelled{
		id: res.ID, state: api.Queued, expires: m.f.Clock.Now().Add(time.Duration(life) * time.Second), events: []string{"command_queued"},
	})
}

func (m *model) fetch(t *rapid.T) {
	limit := rapid.IntRange(0, 3).Draw(t, "limit")
	res, err := m.f.Commands.Fetch(m.agents[0].Context(t.Context()), api.CommandsRequest{Limit: limit})
	want(t, "fetch", err, "")
	var ids, expected []string
	for _, raw := range res.Commands {
		var item api.CommandItem
		var c api.Command
		if json.Unmarshal(raw, &item) != nil || json.Unmarshal([]byte(item.Data), &c) != nil {
			t.Fatalf("cannot read %s", raw)
		}
		ids = append(ids, c.ID)
	}
	for _, c := range m.all {
		if (c.state == api.Queued || c.state == api.Delivered) && m.f.Clock.Now().Before(c.expires) && (limit == 0 || len(expected) < limit) {
			expected = append(expected, c.id)
			if c.state == api.Queued {
				c.to(api.Delivered)
			}
		}
	}
	if !slices.Equal(ids, expected) {
		t.Fatalf("fetched %v, want %v", ids, expected)
	}
}

func (m *model) ack(t *rapid.T) {
	a, c := m.agent(t), m.pick(t)
	_, err := m.f.Commands.Ack(a.Context(t.Context()), api.AckRequest{ID: c.id})
	if a.Instance == (api.Instance{}) {
		want(t, "a nameless ack", err, api.Invalid)
		return
	}
	if !m.mine(a) {
		want(t, "another node's ack", err, api.NotFound)
		return
	}
	switch c.state {
	case api.Queued, api.Delivered:
		if !m.f.Clock.Now().Before(c.expires) {
			want(t, "an ack too late", err, api.CommandExpired)
			c.to(api.Expired)
			return
		}
		want(t, "an ack", err, "")
		m.accept(c, a.Instance)
		c.told = true
	case api.Acked:
		inherits := a.Instance == c.by || a.Instance.Epoch == c.by.Epoch && a.Instance.Starts > c.by.Starts
		if !inherits {
			want(t, fmt.Sprintf("an ack by %v after %v", a.Instance, c.by), err, api.AckedElsewhere)
			return
		}
		want(t, "an ack again", err, "")
		c.by = a.Instance
	case api.Expired:
		want(t, "ack of expired", err, api.CommandExpired)
	case api.Canceled:
		want(t, "ack of canceled", err, api.CommandCanceled)
	case api.Lost:
		want(t, "ack of lost", err, api.CommandLost)
	default:
		want(t, "ack of ended", err, api.CommandFinished)
	}
}

// accept takes the steps up to acked.
func (m *model) accept(c *modelled, by api.Instance) {
	if c.state == api.Queued {
		c.to(api.Delivered)
	}
	if c.state == api.Delivered {
		c.to(api.Acked)
		c.by = by
	}
}

func (m *model) result(t *rapid.T) {
	a, c := m.agent(t), m.pick(t)
	outcome := rapid.SampledFrom([]api.Outcome{
		api.OutcomeSucceeded, api.OutcomeFailed, api.OutcomeRejected, api.OutcomeSuperseded, api.OutcomeUnknown,
	}).Draw(t, "outcome")
	said := api.Result{Status: outcome, Error: rapid.SampledFrom([]string{"", "because"}).Draw(t, "error")}
	res, err := m.f.Commands.Result(a.Context(t.Context()), api.ResultRequest{ID: c.id, Result: said})
	if a.Instance == (api.Instance{}) {
		want(t, "a nameless result", err, api.Invalid)
		return
	}
	if !m.mine(a) {
		want(t, "another node's result", err, "")
		if res.State != "" {
			t.Fatalf("another node learned that it is %s", res.State)
		}
		return
	}
	text := string(outcome) + " " + said.Error
	switch {
	case c.state == api.Queued || c.state == api.Delivered || c.state == api.Acked:
		if outcome == api.OutcomeRejected && c.state != api.Acked { // straight from delivered
			if c.state == api.Queued {
				c.to(api.Delivered)
			}
		} else {
			m.accept(c, a.Instance)
		}
		c.to(outcome.State())
		c.result = text
	case c.result == text || c.late == text: // the same again
	case c.state == api.Lost && c.result == "" && c.late == "":
		c.late = text
		c.events = append(c.events, "command_late_result")
	default:
		want(t, "a different result", err, api.ResultDiffers)
		return
	}
	want(t, "a result", err, "")
	if res.State != c.state {
		t.Fatalf("the answer says %s, want %s", res.State, c.state)
	}
}

func (m *model) cancel(t *rapid.T) {
	c := m.pick(t)
	status, err := m.f.Commands.Cancel(t.Context(), api.CancelCommandRequest{ID: c.id})
	switch c.state {
	case api.Queued, api.Delivered:
		c.to(api.Canceled)
	case api.Canceled:
	case api.Acked:
		want(t, "cancel of acked", err, api.CommandAcked)
		return
	default:
		want(t, "cancel of ended", err, api.CommandFinished)
		return
	}
	want(t, "a cancel", err, "")
	if status.State != api.Canceled || !status.NeverRan {
		t.Fatalf("the answer is %+v", status)
	}
}

func (m *model) wait(t *rapid.T) {
	m.f.Clock.Move(time.Duration(rapid.SampledFrom([]int{1, 500, 1000}).Draw(t, "ms")) * time.Millisecond)
}

func (m *model) expire(t *rapid.T) {
	want(t, "expire", m.f.Commands.Expire(t.Context()), "")
	for _, c := range m.all {
		if (c.state == api.Queued || c.state == api.Delivered) && !m.f.Clock.Now().Before(c.expires) {
			c.to(api.Expired)
		}
	}
}

func (m *model) beat(t *rapid.T) {
	a := m.agent(t)
	if !m.node || !m.mine(a) {
		t.Skip("the middleware lets a revoked node do nothing")
	}
	_, err := m.f.Nodes.Heartbeat(a.Context(t.Context()), api.HeartbeatRequest{})
	want(t, "a heartbeat", err, "")
	if a.Instance.Epoch == "" || a.Instance.Epoch == m.epoch {
		return
	}
	m.epoch = a.Instance.Epoch
	for _, c := range m.all {
		if c.state == api.Acked && c.by.Epoch != m.epoch {
			c.to(api.Lost)
		}
	}
}

func (m *model) revoke(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "dice") > 0 {
		t.Skip("seldom")
	}
	_, err := m.f.Nodes.Revoke(t.Context(), api.RevokeNodeRequest{Node: m.agents[0].ID})
	want(t, "revoke", err, "")
	m.node = false
	for _, c := range m.all {
		switch c.state {
		case api.Queued, api.Delivered:
			c.to(api.Canceled)
		case api.Acked:
			c.to(api.Lost)
		}
	}
}

// check compares each command with the model, and holds the invariants.
func (m *model) check(t *rapid.T) {
	ids := make([]string, len(m.all))
	for i, c := range m.all {
		ids[i] = c.id
	}
	var list []api.CommandStatus
	err := m.f.Store.View(t.Context(), func(tx *store.Tx) (err error) {
		list, err = m.f.Commands.Statuses(tx, ids)
		return err
	})
	want(t, "look", err, "")
	for i, c := range m.all {
		s := list[i]
		if s.State != c.state {
			t.Fatalf("%s is %s, want %s", c.id, s.State, c.state)
		}
		if c.told && (s.State == api.Expired || s.State == api.Canceled) {
			t.Fatalf("an agent was told yes and it is %s", s.State)
		}
		neverRan := s.State == api.Expired || s.State == api.Canceled || s.State == api.Rejected || s.State == api.Superseded
		if s.NeverRan != neverRan {
			t.Fatalf("%s: never ran is %v", s.State, s.NeverRan)
		}
		if (s.EndedAt != nil) != s.State.Ended() || (s.WaitingOn == "") != s.State.Ended() {
			t.Fatalf("%s: ended at %v, waits on %q", s.State, s.EndedAt, s.WaitingOn)
		}
		shown := c.result + c.late
		if (s.Result == nil) != (shown == "") || s.Result != nil && string(s.Result.Status)+" "+s.Result.Error != shown {
			t.Fatalf("the result shown is %+v, want %q", s.Result, shown)
		}
	}
}

// checkEvents wants one event for each step, and each step in the table.
func (m *model) checkEvents(t *rapid.T) {
	for _, c := range m.all {
		if got := m.f.EventsOf(m.t, c.id); !slices.Equal(without(got, "result_unclaimed"), c.events) {
			t.Fatalf("events %v, want %v", got, c.events)
		}
		before := api.Queued
		for _, kind := range without(c.events, "command_late_result")[1:] {
			next := api.State(kind[len("command_"):])
			if !before.May(next) {
				t.Fatalf("%s followed %s", next, before)
			}
			before = next
		}
	}
}

func without(list []string, word string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == word })
}

// want fails where err is not the verdict code, "" being none.
func want(t *rapid.T, what string, err error, code api.Code) {
	var got api.Code
	if err != nil {
		got = api.AsError(err).Code
	}
	if got != code {
		t.Fatalf("%s: want %q, got %v", what, code, err)
	}
}
