package command_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/command"
	"github.com/beckon-fleet/beckon/server/internal/servertest"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// Of two that race for a command one wins, and both are told which.
func TestCancelRacesAck(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		wins := map[api.State]int{}
		for range 15 {
			id := a.Stop(t).ID
			a.Fetch(t)
			var acked, canceled error
			var wg sync.WaitGroup
			wg.Go(func() { acked = a.Ack(t, id) })
			wg.Go(func() { _, canceled = f.Commands.Cancel(t.Context(), api.CancelCommandRequest{ID: id}) })
			wg.Wait()
			state := f.State(t, id).State
			wins[state]++
			switch {
			case state == api.Acked && acked == nil && errors.Is(canceled, api.CommandAcked):
			case state == api.Canceled && canceled == nil && errors.Is(acked, api.CommandCanceled):
			default:
				t.Errorf("it is %s; the ack got %v, the cancel %v", state, acked, canceled)
			}
			if n := len(f.EventsOf(t, id)); n != 3 {
				t.Errorf("%d events", n)
			}
		}
		t.Log(wins)
	})
}

func TestTwoProcessesRaceForAnAck(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		id := a.Stop(t).ID
		var mu sync.Mutex
		var told []api.Code
		var wg sync.WaitGroup
		for _, random := range []string{"r1", "r2", "r3", "r4", "r5", "r6"} {
			wg.Go(func() {
				var code api.Code
				if err := a.As("e1", 1, random).Ack(t, id); err != nil {
					code = api.AsError(err).Code
				}
				mu.Lock()
				defer mu.Unlock()
				told = append(told, code)
			})
		}
		wg.Wait()
		slices.Sort(told)
		want := slices.Concat([]api.Code{""}, slices.Repeat([]api.Code{api.AckedElsewhere}, 5))
		if !slices.Equal(told, want) {
			t.Errorf("they were told %v", told)
		}
	})
}

// An ack passes on to a later start on the same journal, and never back.
func TestAckIsInherited(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		id := a.Stop(t).ID
		a.Fetch(t)
		for _, c := range []struct {
			epoch  string
			starts int64
			random string
			want   api.Code
		}{
			{"e1", 2, "r2", ""},
			{"e1", 2, "r2", ""},
			{"e1", 2, "twin", api.AckedElsewhere},
			{"e1", 1, "r1", api.AckedElsewhere},
			{"e2", 3, "r3", api.AckedElsewhere},
			{"e1", 3, "r3", ""},
			{"e1", 2, "r2", api.AckedElsewhere}, // it is not the last one any more
			{"e1", 3, "r3", ""},
			{"", 0, "", api.Invalid},
		} {
			var code api.Code
			by := a.As(c.epoch, c.starts, c.random)
			if err := by.Ack(t, id); err != nil {
				code = api.AsError(err).Code
			}
			if code != c.want {
				t.Errorf("%s: want %q, got %q", by.Instance, c.want, code)
			}
		}
		if n := len(f.EventsOf(t, id)); n != 3 {
			t.Errorf("%d events: an ack again is none", n)
		}
	})
}

// Expiry is judged when the ack is asked for, and is stored though the ack is
// refused. A job that ends the same command at the same time changes nothing.
func TestExpiryIsJudgedAtTheAck(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		kept, late, swept := a.Stop(t).ID, a.Stop(t).ID, a.Stop(t).ID
		a.Fetch(t)
		f.Clock.Move(api.CommandLife - time.Millisecond)
		if err := a.Ack(t, kept); err != nil {
			t.Errorf("a millisecond before its end: %v", err)
		}
		f.Clock.Move(time.Millisecond)
		wantCode(t, "at its end", a.Ack(t, late), api.CommandExpired)
		if s := f.State(t, late); s.State != api.Expired || !s.NeverRan || s.Reason != "not_delivered" {
			t.Errorf("it is %+v", s)
		}
		for range 2 {
			if err := f.Commands.Expire(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for id, want := range map[string]api.State{kept: api.Acked, late: api.Expired, swept: api.Expired} {
			if s := f.State(t, id); s.State != want {
				t.Errorf("want %s, got %s", want, s.State)
			}
		}
		if n := f.Count(t, `FROM events WHERE kind = 'command_expired'`); n != 2 {
			t.Errorf("%d expiries were recorded", n)
		}
		if n := len(a.Fetch(t).Commands); n != 0 {
			t.Errorf("%d are delivered still", n)
		}
	})
}

func TestResultOfACommandThatIsNotKnown(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a, other := f.Join(t, "web"), f.Join(t, "other")
		id := other.Stop(t).ID
		other.Fetch(t)
		for _, id := range []string{"cmd_forgotten", id, ""} {
			state, err := a.Result(t, id, api.Result{Status: api.OutcomeSucceeded})
			if err != nil || state != "" {
				t.Errorf("%q: %q, %v", id, state, err)
			}
		}
		page, err := f.Events.List(t.Context(), api.ListEventsRequest{Node: a.ID, Subject: "cmd_forgotten"})
		if err != nil || len(page.Items) != 1 || page.Items[0].Kind != "result_unclaimed" || !strings.Contains(page.Items[0].Message, "succeeded") {
			t.Errorf("the event: %+v, %v", page.Items, err)
		}
		if s := f.State(t, id); s.State != api.Delivered || s.Result != nil {
			t.Errorf("the other node's command is %+v", s)
		}
		wantCode(t, "an ack of another node's", a.Ack(t, id), api.NotFound)
		wantCode(t, "an ack of none", a.Ack(t, "cmd_forgotten"), api.NotFound)
	})
}

func TestLateResultStandsBesideLost(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		a.Beat(t, api.HeartbeatRequest{})
		id := a.Stop(t).ID
		a.Fetch(t)
		if err := a.Ack(t, id); err != nil {
			t.Fatal(err)
		}
		fresh := a.As("e2", 1, "r2")
		fresh.Beat(t, api.HeartbeatRequest{})
		ended := f.State(t, id).EndedAt
		f.Clock.Move(time.Minute)
		late := api.Result{Status: api.OutcomeFailed, Error: "late", Attempt: 1, Output: json.RawMessage(`{"x": [1, 2]}`)}
		for range 2 {
			if state, err := a.Result(t, id, late); err != nil || state != api.Lost {
				t.Errorf("the late result: %s, %v", state, err)
			}
		}
		_, err := a.Result(t, id, api.Result{Status: api.OutcomeSucceeded})
		wantCode(t, "a second one", err, api.ResultDiffers)
		s := f.State(t, id)
		if s.State != api.Lost || s.Result == nil || s.Result.Error != "late" || !s.EndedAt.Equal(*ended) || s.NeverRan {
			t.Errorf("it is %+v with %+v", s, s.Result)
		}
		if n := f.Count(t, `FROM events WHERE kind = 'command_late_result'`); n != 1 {
			t.Errorf("%d late results were recorded", n)
		}
	})
}

func TestAwait(t *testing.T) {
	servertest.EachBubble(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		type end struct {
			list  []api.CommandStatus
			err   error
			after time.Duration
		}
		await := func(ctx context.Context, ids ...string) <-chan end {
			done, start := make(chan end, 1), time.Now()
			go func() {
				list, err := f.Commands.Await(ctx, ids, 30*time.Second)
				done <- end{list, err, time.Since(start)}
			}()
			synctest.Wait()
			return done
		}
		first, second := a.Stop(t).ID, a.Stop(t).ID
		a.Fetch(t)

		both := await(t.Context(), second, first)
		for _, id := range []string{first, second} {
			select {
			case got := <-both:
				t.Errorf("it ended before both had: %+v", got)
			default:
			}
			a.Run(t, id, api.Result{Status: api.OutcomeSucceeded})
			synctest.Wait()
		}
		if got := <-both; got.err != nil || got.after != 0 || got.list[0].ID != second || got.list[1].State != api.Succeeded {
			t.Errorf("both ended: %+v", got)
		}

		third := a.Stop(t).ID
		if got := <-await(t.Context(), third); got.err != nil || got.after != 30*time.Second || got.list[0].State != api.Queued {
			t.Errorf("after the wait: %+v", got)
		}
		canceled := await(t.Context(), third)
		if _, err := f.Commands.Cancel(t.Context(), api.CancelCommandRequest{ID: third}); err != nil {
			t.Fatal(err)
		}
		if got := <-canceled; got.err != nil || got.after != 0 || got.list[0].State != api.Canceled {
			t.Errorf("after a cancel: %+v", got)
		}
		if got := <-await(t.Context(), "cmd_none"); !errors.Is(got.err, api.NotFound) {
			t.Errorf("of none: %+v", got)
		}

		fourth := a.Stop(t).ID
		ctx, cancel := context.WithCancel(t.Context())
		left, stays := await(ctx, fourth), await(t.Context(), fourth)
		cancel()
		if got := <-left; got.err != nil || got.after != 0 || len(got.list) != 1 { // to be kept for a repeat
			t.Errorf("the caller left: %+v", got)
		}
		if got := <-await(ctx, fourth); got.err != nil || got.after != 0 || len(got.list) != 1 {
			t.Errorf("the caller had left before: %+v", got)
		}
		f.Hub.Close()
		if got := <-stays; got.err != nil || got.after != 0 || got.list[0].State != api.Queued {
			t.Errorf("the server stops: %+v", got)
		}
	})
}

func TestSendWaitsForTheOutcome(t *testing.T) {
	servertest.EachBubble(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		request := api.SendCommandRequest{Kind: "stop", Payload: json.RawMessage(`{"app_id": "app_1", "app": "web"}`)}
		if res := a.Send(t, request); res.HTTPStatus() != 201 {
			t.Errorf("without a wait: %d", res.HTTPStatus())
		}
		request.Wait = 5
		if res := a.Send(t, request); res.HTTPStatus() != 202 || res.State != api.Queued || res.Location() != "/api/v1/commands/"+res.ID {
			t.Errorf("after a wait in vain: %d, %+v", res.HTTPStatus(), res)
		}
		go func() {
			synctest.Wait() // until the sender waits
			for _, raw := range a.Fetch(t).Commands {
				_, commands := read(t, a, api.CommandsResponse{Commands: []json.RawMessage{raw}})
				a.Run(t, commands[0].ID, api.Result{Status: api.OutcomeFailed, Error: "no such app"})
			}
		}()
		if res := a.Send(t, request); res.HTTPStatus() != 200 || res.State != api.Failed || res.Result.Error != "no such app" {
			t.Errorf("with an outcome: %d, %+v", res.HTTPStatus(), res)
		}
	})
}

// Every kind is followed, or the server would not start.
func TestUnfollowedKindsAreNamed(t *testing.T) {
	f := servertest.New(t, servertest.SQLite(t))
	if names := f.Commands.Unfollowed(); len(names) != 0 {
		t.Errorf("nobody follows %v", names)
	}
	if names := new(command.Service).Unfollowed(); len(names) != len(api.Kinds) {
		t.Errorf("a service without hooks names %v", names)
	}
}

// What a hook refuses undoes the transition it was told of, event and all.
func TestHookAndTransitionStandOrFallTogether(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		id := a.Stop(t).ID
		fail := errors.New("the hook fails")
		var told []api.State
		f.Commands.On(api.Stop, func(_ *store.Tx, _ command.Command, to api.State, _ *api.Result) error {
			told = append(told, to)
			return fail
		})
		if _, err := f.Commands.Cancel(t.Context(), api.CancelCommandRequest{ID: id}); !errors.Is(err, fail) {
			t.Errorf("the cancel: %v", err)
		}
		if s, events := f.State(t, id), f.EventsOf(t, id); s.State != api.Queued || len(events) != 1 {
			t.Errorf("it is %s, with %v; the hook was told %v", s.State, events, told)
		}
	})
}

func TestCounts(t *testing.T) {
	f := servertest.New(t, servertest.SQLite(t))
	a := f.Join(t, "web")
	for i := range 4 {
		id := a.Stop(t).ID
		if i < 2 {
			a.Fetch(t)
		}
		if i < 1 {
			a.Ack(t, id)
		}
	}
	var counts map[api.State]int
	err := f.Store.View(t.Context(), func(tx *store.Tx) (err error) {
		counts, err = command.Counts(tx)
		return err
	})
	if err != nil || counts[api.Acked] != 1 || counts[api.Delivered] != 1 || counts[api.Queued] != 2 {
		t.Errorf("got %v, %v", counts, err)
	}
}
