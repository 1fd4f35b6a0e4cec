package nudge_test

import (
	"sync"
	"testing"

	"github.com/beckon-fleet/beckon/server/internal/nudge"
)

// woken reports whether w was nudged, and whether its hub is open.
func woken(w *nudge.Waiter) (yes, open bool) {
	select {
	case _, open := <-w.C():
		return true, open
	default:
		return false, true
	}
}

func TestNudge(t *testing.T) {
	h := nudge.NewHub()
	a, both, b := h.Wait("a"), h.Wait("a", "b"), h.Wait("b")
	for range 3 {
		h.Nudge("a")
	}
	h.Nudge("nobody")
	for name, c := range map[string]struct {
		w    *nudge.Waiter
		want bool
	}{"a": {a, true}, "both": {both, true}, "b": {b, false}} {
		if yes, open := woken(c.w); yes != c.want || !open {
			t.Errorf("%s: woken %v, open %v", name, yes, open)
		}
		if yes, _ := woken(c.w); yes {
			t.Errorf("%s: many nudges are more than one", name)
		}
	}
	both.Done()
	h.Nudge("b")
	if yes, _ := woken(both); yes {
		t.Error("woken after Done")
	}
	if yes, _ := woken(b); !yes {
		t.Error("another's Done took the nudge along")
	}
}

func TestNudgeBeforeTheWaitIsNotKept(t *testing.T) {
	h := nudge.NewHub()
	h.Nudge("a")
	if yes, _ := woken(h.Wait("a")); yes {
		t.Error("who waits looks at the state itself; an old nudge is nothing to it")
	}
}

func TestCloseWakesForGood(t *testing.T) {
	h := nudge.NewHub()
	a, both := h.Wait("a"), h.Wait("a", "b")
	h.Close()
	h.Nudge("a") // must not reach what is closed
	late := h.Wait("a")
	for name, w := range map[string]*nudge.Waiter{"a": a, "both": both, "late": late} {
		for range 2 {
			if yes, open := woken(w); !yes || open {
				t.Errorf("%s: woken %v, open %v", name, yes, open)
			}
		}
		w.Done()
	}
}

// Whoever waits, leaves, nudges and closes at once meets no race and no panic.
func TestManyAtOnce(t *testing.T) {
	h := nudge.NewHub()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				w := h.Wait("a", "b")
				h.Nudge("b")
				<-w.C()
				w.Done()
			}
		})
	}
	wg.Wait()
	for range 8 {
		w := h.Wait("a")
		wg.Go(func() {
			for range w.C() {
			}
			w.Done()
		})
	}
	h.Nudge("a")
	h.Close()
	wg.Wait()
}
