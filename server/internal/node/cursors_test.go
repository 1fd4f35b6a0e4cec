package node_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/servertest"
)

// answer is how a call for the cursors ended, and when.
type answer struct {
	res   api.CursorsResponse
	err   error
	after time.Duration
}

// wait calls for the cursors beside the test and returns once it waits.
func wait(a *servertest.Agent, ctx context.Context, req api.CursorsRequest) <-chan answer {
	done, start := make(chan answer, 1), time.Now()
	go func() {
		res, err := a.Nodes.Cursors(a.Context(ctx), req)
		done <- answer{res, err, time.Since(start)}
	}()
	synctest.Wait()
	return done
}

func cursors(t *testing.T, a *servertest.Agent) api.CursorsResponse {
	t.Helper()
	res, err := a.Nodes.Cursors(a.Context(t.Context()), api.CursorsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestCursorsAnswerAtOnceWhenTheyDiffer(t *testing.T) {
	servertest.EachBubble(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		now := cursors(t, a)
		for _, have := range []string{"", `"another"`} {
			got := <-wait(a, t.Context(), api.CursorsRequest{WaitS: 60, Have: have})
			if got.err != nil || got.after != 0 || got.res.ETag() != now.ETag() {
				t.Errorf("have %q: %+v", have, got)
			}
		}
	})
}

func TestCursorsThatStayAreAnsweredAfterTheWait(t *testing.T) {
	servertest.EachBubble(t, func(t *testing.T, f *servertest.Fleet) {
		a, other := f.Join(t, "web"), f.Join(t, "other")
		have := cursors(t, a).ETag()
		done := wait(a, t.Context(), api.CursorsRequest{WaitS: 25, Have: have})
		other.Stop(t) // is nothing to this node
		f.Hub.Nudge(a.ID)
		got := <-done
		if got.err != nil || got.after != 25*time.Second || got.res.ETag() != have { // which is a 304
			t.Errorf("got %+v", got)
		}
	})
}

func TestCursorsAreWoken(t *testing.T) {
	servertest.EachBubble(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		queued := a.Stop(t)
		for _, c := range []struct {
			by string
			do func()
		}{
			{"a command", func() { a.Stop(t) }},
			{"a cancel", func() {
				if _, err := f.Commands.Cancel(t.Context(), api.CancelCommandRequest{ID: queued.ID}); err != nil {
					t.Error(err)
				}
			}},
			{"an expiry", func() {
				f.Clock.Move(api.CommandLife)
				if err := f.Commands.Expire(t.Context()); err != nil {
					t.Error(err)
				}
			}},
		} {
			have := cursors(t, a).ETag()
			done := wait(a, t.Context(), api.CursorsRequest{WaitS: 60, Have: have})
			c.do()
			got := <-done
			if got.err != nil || got.after != 0 || got.res.ETag() == have {
				t.Errorf("%s: %+v", c.by, got)
			}
		}
	})
}

func TestRevocationEndsTheWait(t *testing.T) {
	servertest.EachBubble(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		done := wait(a, t.Context(), api.CursorsRequest{WaitS: 60, Have: cursors(t, a).ETag()})
		if _, err := f.Nodes.Revoke(t.Context(), api.RevokeNodeRequest{Node: a.ID}); err != nil {
			t.Fatal(err)
		}
		got := <-done
		wantCode(t, "a wait", got.err, api.NodeRevoked)
		if got.after != 0 {
			t.Errorf("it ended after %v", got.after)
		}
		wantCode(t, "the next call", f.Nodes.Check(t.Context(), a.ID), api.NodeRevoked)
		wantCode(t, "a stranger's", f.Nodes.Check(t.Context(), "node_1"), api.NodeUnknown)
	})
}

func TestTheEndOfServerOrCallerEndsTheWait(t *testing.T) {
	servertest.EachBubble(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		have := cursors(t, a).ETag()
		ctx, cancel := context.WithCancel(t.Context())
		left := wait(a, ctx, api.CursorsRequest{WaitS: 60, Have: have})
		stays := wait(a, t.Context(), api.CursorsRequest{WaitS: 60, Have: have})
		cancel()
		if got := <-left; !errors.Is(got.err, context.Canceled) || got.after != 0 {
			t.Errorf("the caller left: %+v", got)
		}
		f.Hub.Close()
		if got := <-stays; got.err != nil || got.after != 0 || got.res.ETag() != have {
			t.Errorf("the server stops: %+v", got)
		}
		if got := <-wait(a, t.Context(), api.CursorsRequest{WaitS: 60, Have: have}); got.err != nil || got.after != 0 {
			t.Errorf("a server that stops lets nobody wait: %+v", got)
		}
	})
}
