package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/journal"
	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/internal/durable/durabletest"
)

// begin has a command run when the agent dies.
func (r *rig) begin(kind string) {
	r.t.Helper()
	r.handle = r.slowly
	r.take(r.item(r.command("cmd_1", kind, names("a", "web"))))
	time.Sleep(10 * time.Second)
	r.end()
	r.handle = func(context.Context, string) ([]string, error) { return nil, nil }
}

func TestShutdownLeavesACommandBegun(t *testing.T) {
	bubble(t, func(r *rig) {
		r.handle = r.slowly
		r.take(r.stopOf("cmd_1", "a", "web"), r.stopOf("cmd_2", "a", "next"))
		time.Sleep(10 * time.Second)
		r.restart()
		synctest.Wait()
		r.at("cmd_1", journal.Started)
		r.at("cmd_2", journal.Accepted)
		if r.results() != 0 {
			t.Error("something was said of it")
		}
		r.Wait()
		r.saw("web", "web", "next")
		if result := r.ended("cmd_1", api.OutcomeSucceeded, ""); result.Attempt != 2 {
			t.Errorf("it says %+v", result)
		}
		r.ended("cmd_2", api.OutcomeSucceeded, "")
	})
}

// What a handler could finish while the agent was told to stop is finished.
func TestShutdownKeepsASuccess(t *testing.T) {
	bubble(t, func(r *rig) {
		r.handle = func(ctx context.Context, _ string) ([]string, error) {
			<-ctx.Done()
			return []string{"dep_1"}, nil
		}
		r.take(r.stopOf("cmd_1", "a", "web"))
		synctest.Wait()
		r.restart()
		r.Wait()
		r.saw("web")
		r.ended("cmd_1", api.OutcomeSucceeded, "")
	})
}

func TestRepeatableCommandHasThreeAttempts(t *testing.T) {
	bubble(t, func(r *rig) {
		r.handle = r.slowly
		r.take(r.stopOf("cmd_1", "a", "web"), r.stopOf("cmd_2", "a", "next"))
		for range 3 {
			time.Sleep(10 * time.Second)
			r.restart()
		}
		r.Wait()
		r.saw("web", "web", "web", "next")
		result := r.ended("cmd_1", api.OutcomeUnknown, "interrupted")
		if result.Attempt != 3 || !strings.Contains(result.Error, "ended 3 times") || result.StartedAt == nil {
			t.Errorf("it says %+v", result)
		}
		r.ended("cmd_2", api.OutcomeSucceeded, "")
	})
}

func TestProbedCommand(t *testing.T) {
	for name, c := range map[string]struct {
		look   func(ctx context.Context, since time.Time) (bool, error)
		again  bool
		status api.Outcome
		words  string
	}{
		"has happened":     {look: func(context.Context, time.Time) (bool, error) { return true, nil }, status: api.OutcomeSucceeded},
		"has not happened": {look: func(context.Context, time.Time) (bool, error) { return false, nil }, again: true, status: api.OutcomeSucceeded},
		"cannot be seen": {
			look: func(context.Context, time.Time) (bool, error) { return false, errors.New("the engine is gone") }, status: api.OutcomeUnknown, words: "cannot be seen: the engine is gone",
		},
		"panics": {
			look: func(context.Context, time.Time) (bool, error) { panic("oh") }, status: api.OutcomeUnknown, words: "a bug in restart: oh",
		},
		"is stuck": {
			look:   func(ctx context.Context, _ time.Time) (bool, error) { <-ctx.Done(); return false, ctx.Err() },
			status: api.OutcomeUnknown, words: "took longer than 5m0s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.look = c.look
				r.begin("restart")
				r.start()
				r.take(r.stopOf("cmd_2", "a", "next"))
				r.Wait()
				reason := ""
				if c.status == api.OutcomeUnknown {
					reason = "interrupted"
				}
				result := r.ended("cmd_1", c.status, reason)
				if !strings.Contains(result.Error, c.words) {
					t.Errorf("it says %q", result.Error)
				}
				want := []string{"web"}
				if c.again {
					want = append(want, "web")
				} else if c.status == api.OutcomeSucceeded && !strings.Contains(string(result.Output), "seen") {
					t.Errorf("the output is %s", result.Output)
				}
				r.saw(append(want, "next")...)
			})
		})
	}
}

// The effect is looked for since the attempt began, however often the permit
// was asked again meanwhile: else what has happened would happen again.
func TestProbeLooksSinceTheStart(t *testing.T) {
	bubble(t, func(r *rig) {
		r.begin("restart")
		began := r.began("cmd_1")
		var since []time.Time
		r.look = func(ctx context.Context, at time.Time) (bool, error) {
			since = append(since, at)
			if len(since) < 3 {
				<-ctx.Done() // the agent dies again while it looks
				return false, ctx.Err()
			}
			return true, nil
		}
		r.start()
		for range 2 {
			time.Sleep(20 * time.Second)
			r.restart()
		}
		r.Wait()
		r.saw("web")
		for _, at := range since {
			if !at.Equal(began) {
				t.Errorf("it began at %v, and was looked for since %v", began, since)
			}
		}
		r.ended("cmd_1", api.OutcomeSucceeded, "")
	})
}

// began is when a command was begun, read while no agent runs.
func (r *rig) began(id string) time.Time {
	r.t.Helper()
	j, err := journal.Open(r.path, time.Now)
	if err != nil {
		r.t.Fatal(err)
	}
	defer j.Close()
	e, err := j.Get(id)
	if err != nil || e == nil {
		r.t.Fatal(err)
	}
	return e.StartedAt
}

// The next process may be another version, or another install. What it may not
// run has never run only if it never began.
func TestNextProcessMayNotRunIt(t *testing.T) {
	observe := int(api.TierObserve)
	for name, change := range map[string]func(r *rig){
		"it has no such kind": func(r *rig) { r.without = "stop" },
		"its tier is lower":   func(r *rig) { r.tier = &observe },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.handle = r.slowly
				r.take(r.stopOf("cmd_1", "a", "web"), r.stopOf("cmd_2", "a", "next"))
				time.Sleep(10 * time.Second)
				change(r)
				r.restart()
				r.Wait()
				r.saw("web")
				if result := r.ended("cmd_1", api.OutcomeUnknown, "interrupted"); result.Attempt != 1 || result.StartedAt == nil {
					t.Errorf("it says %+v", result)
				}
				reason := "invalid"
				if r.tier != nil {
					reason = "tier_too_low"
				}
				r.ended("cmd_2", api.OutcomeRejected, reason)
			})
		})
	}
}

// filled is a disk with no room, until free is called.
func filled(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	file, err := os.Create(path)
	for err == nil {
		_, err = file.Write(make([]byte, 4096))
	}
	if file == nil {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(os.Remove(path), file.Close()); err != nil {
			t.Error(err)
		}
	}
}

// results is how often the agent was told to send one.
func (r *rig) results() (n int) {
	r.note(func() { n = r.done })
	return n
}

// runs is how often a handler began.
func (r *rig) runs() (n int) {
	r.note(func() { n = len(r.ran) })
	return n
}

// A disk that is full when a handler ends holds up the command, and does not
// leave it to the next start.
func TestFullDiskIsWaitedFor(t *testing.T) {
	dir := durabletest.SmallDisk(t, 1<<20)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, filepath.Join(dir, "journal.db"))
		r.start()
		defer r.end()
		free := func() {}
		r.handle = func(ctx context.Context, app string) ([]string, error) {
			if app == "web" && r.runs() == 1 {
				free = filled(t, dir)
			}
			return []string{strings.Repeat("x", 60_000)}, nil
		}
		r.take(r.stopOf("cmd_1", "a", "web"), r.stopOf("cmd_2", "a", "next"))
		time.Sleep(time.Second / 2)
		synctest.Wait()
		r.at("cmd_1", journal.Started)
		free()
		r.Wait()
		if result := r.ended("cmd_1", api.OutcomeSucceeded, ""); result.Attempt != 2 || len(result.Output) < 60_000 {
			t.Errorf("it says %+v", result)
		}
		r.ended("cmd_2", api.OutcomeSucceeded, "")
	})
}

// A deploy whose giving way cannot be journalled keeps its place: the newest
// still ends up last.
func TestFullDiskWhileGivingWay(t *testing.T) {
	dir := durabletest.SmallDisk(t, 2<<20)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, filepath.Join(dir, "journal.db"))
		r.start()
		defer r.end()
		r.handle = r.slowly
		for i := range 20 { // so that the large one and the newest are apart in the file
			id := fmt.Sprintf("cmd_m%d", i)
			if _, err := r.journal.Receive(id, 1, `{}`); err != nil {
				t.Fatal(err)
			}
			if err := r.journal.Refuse(id, "not_found"); err != nil {
				t.Fatal(err)
			}
		}
		r.take(r.stopOf("cmd_y", "a", "first"))
		synctest.Wait()
		large := strings.Replace(deployment("a", "older"), "{", fmt.Sprintf(`{"env": {"A": %q}, `, strings.Repeat("x", 200_000)), 1)
		r.take(r.item(r.command("cmd_a", "deploy", large)))
		newest := r.deployOf("cmd_z", "a", "newest")
		free := filled(t, dir)
		r.exhaust()
		r.take(newest)
		r.at("cmd_a", journal.Accepted)
		r.at("cmd_z", journal.Accepted)
		free()
		r.Wait()
		r.saw("first", "older", "newest")
		r.ended("cmd_a", api.OutcomeSucceeded, "")
	})
}

// exhaust fills what is free within the journal's file, but for small pieces.
func (r *rig) exhaust() {
	n := 0
	for size := 400_000; size > 20_000; {
		n++
		// They come after all others.
		if _, err := r.journal.Receive(fmt.Sprintf("cmd_f%d", n), 1<<40, strings.Repeat(" ", size)); err != nil {
			size = size * 3 / 4
		}
	}
}
