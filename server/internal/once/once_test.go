package once_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/event"
	"github.com/beckon-fleet/beckon/server/internal/once"
	"github.com/beckon-fleet/beckon/server/internal/servertest"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// effect is what a request does: it leaves an event.
func effect(ctx context.Context, f *servertest.Fleet) error {
	return f.Store.Update(ctx, func(tx *store.Tx) error { return event.Record(tx, api.Event{Kind: "effect"}) })
}

func effects(t *testing.T, f *servertest.Fleet) int {
	t.Helper()
	return f.Count(t, `FROM events WHERE kind = 'effect'`)
}

// ask is one request from its beginning to its end.
func ask(f *servertest.Fleet, k *once.Keeper, r once.Request, answer *once.Answer) (first *once.Answer, err error) {
	ctx, first, err := k.Begin(context.Background(), r)
	if err != nil || first != nil {
		return first, err
	}
	if err := effect(ctx, f); err != nil {
		return nil, errors.Join(err, k.End(ctx, r, nil))
	}
	return nil, k.End(ctx, r, answer)
}

func request(key, hash string) once.Request {
	return once.Request{Scope: "optok_1 POST /things", Key: key, Hash: hash}
}

// wants holds what a repeat is told against what it should be.
func wants(t *testing.T, what string, first *once.Answer, err error, code api.Code, body string) {
	t.Helper()
	switch {
	case code != "" && !errors.Is(err, code):
		t.Errorf("%s: got %v, %v, want %s", what, first, err, code)
	case code == "" && (err != nil || (first == nil) != (body == "") || first != nil && first.Body != body):
		t.Errorf("%s: got %v, %v, want %q", what, first, err, body)
	}
}

func TestRepeats(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		k := &once.Keeper{Store: f.Store}
		first, err := ask(f, k, request("a", "h"), &once.Answer{Status: 201, Body: `{"n": 1}`})
		wants(t, "the first", first, err, "", "")
		again, err := ask(f, k, request("a", "h"), nil)
		wants(t, "the repeat", again, err, "", `{"n": 1}`)
		if again.Status != 201 {
			t.Errorf("the repeat has status %d", again.Status)
		}
		other, err := ask(f, k, request("a", "other"), nil)
		wants(t, "another body", other, err, api.KeyReused, "")
		scope := request("a", "h")
		scope.Scope = "optok_2 POST /things"
		theirs, err := ask(f, k, scope, &once.Answer{Status: 201, Body: `{"n": 2}`})
		wants(t, "another operator", theirs, err, "", "")
		if n := effects(t, f); n != 2 {
			t.Errorf("%d effects of two requests", n)
		}
		restarted, err := ask(f, &once.Keeper{Store: f.Store}, request("a", "h"), nil)
		wants(t, "after a restart of the server", restarted, err, "", `{"n": 1}`)
	})
}

func TestWhileTheFirstRuns(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		k, elsewhere := &once.Keeper{Store: f.Store}, &once.Keeper{Store: f.Store}
		ctx, _, err := k.Begin(t.Context(), request("a", "h"))
		if err != nil {
			t.Fatal(err)
		}
		first, err := ask(f, k, request("a", "h"), nil)
		wants(t, "before its effect", first, err, api.KeyInUse, "")
		first, err = ask(f, k, request("a", "other"), nil)
		wants(t, "another body", first, err, api.KeyInUse, "")
		// A server that shares the database has begun too, and comes second.
		late, _, err := elsewhere.Begin(t.Context(), request("a", "h"))
		if err != nil {
			t.Fatal(err)
		}
		if err := effect(ctx, f); err != nil {
			t.Fatal(err)
		}
		if err := effect(late, f); !errors.Is(err, api.KeyInUse) {
			t.Errorf("the second server's effect: %v", err)
		}
		if err := elsewhere.End(late, request("a", "h"), nil); err != nil {
			t.Error(err)
		}
		if n := effects(t, f); n != 1 {
			t.Errorf("%d effects", n)
		}
		if err := k.End(ctx, request("a", "h"), &once.Answer{Status: 200, Body: "{}"}); err != nil {
			t.Fatal(err)
		}
		first, err = ask(f, elsewhere, request("a", "h"), nil)
		wants(t, "afterwards, on the other server", first, err, "", "{}")
	})
}

// An effect and its name stand or fall together, and so do later effects of the
// same request.
func TestNameFallsWithItsEffect(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		k := &once.Keeper{Store: f.Store}
		ctx, _, err := k.Begin(t.Context(), request("a", "h"))
		if err != nil {
			t.Fatal(err)
		}
		undone := errors.New("undone")
		err = f.Store.Update(ctx, func(tx *store.Tx) error {
			return errors.Join(event.Record(tx, api.Event{Kind: "effect"}), undone)
		})
		if n := f.Count(t, `FROM idempotency_keys`); n != 0 || effects(t, f) != 0 || !errors.Is(err, undone) {
			t.Errorf("%d keys, %d effects, %v", n, effects(t, f), err)
		}
		for range 2 { // one request may write more than once
			if err := effect(ctx, f); err != nil {
				t.Error(err)
			}
		}
		if err := k.End(ctx, request("a", "h"), &once.Answer{Status: 200, Body: "{}"}); err != nil {
			t.Error(err)
		}
		if n := f.Count(t, `FROM idempotency_keys`); n != 1 || effects(t, f) != 2 {
			t.Errorf("%d keys, %d effects", n, effects(t, f))
		}
	})
}

// When a server died between an effect and its answer, a repeat is told that
// there was an effect: it must neither be done again nor made up.
func TestLostAnswer(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		k := &once.Keeper{Store: f.Store}
		ctx, _, err := k.Begin(t.Context(), request("a", "h"))
		if err != nil {
			t.Fatal(err)
		}
		if err := effect(ctx, f); err != nil {
			t.Fatal(err)
		}
		first, err := ask(f, &once.Keeper{Store: f.Store}, request("a", "h"), nil)
		wants(t, "the repeat", first, err, api.Conflict, "")
		if n := effects(t, f); n != 1 || !strings.Contains(err.Error(), "took effect") {
			t.Errorf("%d effects, %v", n, err)
		}
	})
}

// The answer is kept though its caller has gone.
func TestCallerHasGone(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		k := &once.Keeper{Store: f.Store}
		caller, leave := context.WithCancel(t.Context())
		ctx, _, err := k.Begin(caller, request("a", "h"))
		if err != nil {
			t.Fatal(err)
		}
		if err := effect(ctx, f); err != nil {
			t.Fatal(err)
		}
		leave()
		if err := k.End(ctx, request("a", "h"), &once.Answer{Status: 202, Body: `{"n": 1}`}); err != nil {
			t.Fatal(err)
		}
		first, err := ask(f, k, request("a", "h"), nil)
		wants(t, "the repeat", first, err, "", `{"n": 1}`)
	})
}

func TestKeysAreForgottenAfterADay(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		k := &once.Keeper{Store: f.Store}
		repeat := func(what, body string) {
			t.Helper()
			if err := k.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			first, err := ask(f, k, request("a", "h"), &once.Answer{Status: 201, Body: `{"n": 1}`})
			wants(t, what, first, err, "", body)
		}
		repeat("the first", "")
		f.Clock.Move(24 * time.Hour)
		repeat("a day later", `{"n": 1}`)
		f.Clock.Move(time.Millisecond)
		repeat("after that", "")
		if n := effects(t, f); n != 2 {
			t.Errorf("%d effects", n)
		}
	})
}

func TestManyAtOnceHaveOneEffect(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		servers := []*once.Keeper{{Store: f.Store}, {Store: f.Store}}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for { // as a client does
					_, err := ask(f, servers[i%2], request("a", "h"), &once.Answer{Status: 201, Body: "{}"})
					if err == nil {
						return
					}
					if !errors.Is(err, api.KeyInUse) && !errors.Is(err, api.Conflict) {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if n := effects(t, f); n != 1 {
			t.Errorf("%d effects", n)
		}
	})
}
