package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/beckon-fleet/beckon/agent/internal/journal"
	"github.com/beckon-fleet/beckon/api"
)

func TestLanesRunInOrderAndSideBySide(t *testing.T) {
	bubble(t, func(r *rig) {
		r.handle = r.slowly
		began := time.Now()
		if !r.Idle() {
			t.Error("it is busy before anything came")
		}
		r.take(r.stopOf("cmd_1", "a", "a-1"), r.restartOf("cmd_2", "a", "a-2"), r.deployOf("cmd_3", "a", "a-3"), r.stopOf("cmd_4", "b", "b-1"))
		if r.Idle() {
			t.Error("it is idle with four commands")
		}
		r.Wait()
		if took := time.Since(began); took != 3*time.Minute {
			t.Errorf("three in one lane took %v", took)
		}
		inOrder(t, r.ran, "a-1", "a-2", "a-3")
		if i := slices.Index(r.ran, "b-1"); i < 0 || i > 1 {
			t.Errorf("the other lane waited: %v", r.ran)
		}
		if !r.Idle() {
			t.Error("it is busy after all has ended")
		}
	})
}

// inOrder wants these among those seen, in this order.
func inOrder(t *testing.T, seen []string, want ...string) {
	t.Helper()
	got := slices.DeleteFunc(slices.Clone(seen), func(s string) bool { return !slices.Contains(want, s) })
	if !slices.Equal(got, want) {
		t.Errorf("in this order: %v, want %v", got, want)
	}
}

func TestAtMostEightAtOnce(t *testing.T) {
	bubble(t, func(r *rig) {
		var now, most atomic.Int32
		r.handle = func(ctx context.Context, app string) ([]string, error) {
			n := now.Add(1)
			defer now.Add(-1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			return r.slowly(ctx, app)
		}
		began := time.Now()
		var items []json.RawMessage
		for i := range 20 {
			items = append(items, r.stopOf(fmt.Sprintf("cmd_%d", i), fmt.Sprintf("lane_%d", i), "web"))
		}
		r.take(items...)
		r.Wait()
		if most.Load() != 8 || time.Since(began) != 3*time.Minute {
			t.Errorf("20 lanes ran %d at once, for %v", most.Load(), time.Since(began))
		}
		if list, err := r.journal.In(journal.Finished); len(list) != 20 || err != nil {
			t.Errorf("%d ended: %v", len(list), err)
		}
	})
}

// Field case: an older deploy finishes last and wins.
func TestQueuedDeployGivesWayToANewerOne(t *testing.T) {
	bubble(t, func(r *rig) {
		r.handle = r.slowly
		r.take(r.deployOf("cmd_1", "a", "a-1"))
		synctest.Wait() // it runs
		r.take(
			r.restartOf("cmd_2", "a", "a-2"),
			r.deployOf("cmd_3", "a", "a-3"),
			r.deployOf("cmd_4", "b", "b-4"),
			r.stopOf("cmd_5", "a", "a-5"),
			r.deployOf("cmd_6", "a", "a-6"),
			r.restartOf("cmd_7", "a", "a-7"),
		)
		old := r.ended("cmd_3", api.OutcomeSuperseded, "newer_command")
		if !strings.Contains(old.Error, "cmd_6") || old.StartedAt != nil || old.Attempt != 0 {
			t.Errorf("it says %+v", old)
		}
		r.Wait()
		inOrder(t, r.ran, "a-1", "a-2", "a-5", "a-6", "a-7")
		if slices.Contains(r.ran, "a-3") {
			t.Error("what gave way has run")
		}
		for _, id := range []string{"cmd_1", "cmd_2", "cmd_4", "cmd_5", "cmd_6", "cmd_7"} {
			r.ended(id, api.OutcomeSucceeded, "")
		}
	})
}

// Giving way would hide what it may have done.
func TestBegunDeployDoesNotGiveWay(t *testing.T) {
	bubble(t, func(r *rig) {
		r.handle = r.slowly
		r.take(r.restartOf("cmd_1", "a", "a-1"), r.deployOf("cmd_2", "a", "a-2"))
		if _, err := r.journal.Start("cmd_2"); err != nil {
			t.Fatal(err)
		}
		r.restart()
		synctest.Wait()
		r.take(r.deployOf("cmd_3", "a", "a-3"))
		r.Wait()
		inOrder(t, r.ran, "a-2", "a-3")
		r.ended("cmd_2", api.OutcomeSucceeded, "")
	})
}

func TestPanicIsThisCommandsFailure(t *testing.T) {
	bubble(t, func(r *rig) {
		r.handle = func(_ context.Context, app string) ([]string, error) {
			if app == "bug" {
				panic(errors.New("oh"))
			}
			return nil, nil
		}
		r.take(r.stopOf("cmd_1", "a", "bug"), r.stopOf("cmd_2", "a", "web"))
		r.Wait()
		if result := r.ended("cmd_1", api.OutcomeFailed, ""); !strings.Contains(result.Error, "a bug in stop: oh") || result.Attempt != 1 {
			t.Errorf("it says %+v", result)
		}
		r.ended("cmd_2", api.OutcomeSucceeded, "")
	})
}

func TestDeadlineEndsAHandlerThatIsStuck(t *testing.T) {
	bubble(t, func(r *rig) {
		began := time.Now()
		r.handle = func(ctx context.Context, app string) ([]string, error) {
			switch app {
			case "stuck":
				<-ctx.Done()
				return nil, ctx.Err()
			case "words":
				<-ctx.Done()
				return nil, errors.New("the engine did not answer")
			case "inner":
				return nil, fmt.Errorf("ask registry: %w", context.DeadlineExceeded)
			}
			return nil, nil
		}
		r.take(r.stopOf("cmd_1", "a", "stuck"), r.deployOf("cmd_2", "b", "words"), r.stopOf("cmd_3", "c", "inner"), r.stopOf("cmd_4", "a", "web"))
		r.Wait()
		if took := time.Since(began); took != api.Deploy.Deadline() {
			t.Errorf("it took %v", took)
		}
		for id, want := range map[string]string{
			"cmd_1": "it took longer than 5m0s: context deadline exceeded",
			"cmd_2": "it took longer than 15m0s: the engine did not answer",
			"cmd_3": "ask registry: context deadline exceeded",
		} {
			if result := r.ended(id, api.OutcomeFailed, ""); result.Error != want {
				t.Errorf("%s says %q, want %q", id, result.Error, want)
			}
		}
		if e := r.entry("cmd_1"); e.EndedAt.Sub(began) != api.Stop.Deadline() {
			t.Errorf("it ended after %v", e.EndedAt.Sub(began))
		}
		r.ended("cmd_4", api.OutcomeSucceeded, "")
	})
}

func TestFailuresKeepTheirCode(t *testing.T) {
	bubble(t, func(r *rig) {
		r.handle = func(_ context.Context, app string) ([]string, error) {
			if app == "coded" {
				return nil, fmt.Errorf("deploy: %w", api.Errorf(api.Conflict, "a newer revision runs"))
			}
			return nil, errors.New("the image is not there")
		}
		r.take(r.stopOf("cmd_1", "a", "coded"), r.stopOf("cmd_2", "a", "plain"))
		r.Wait()
		if result := r.ended("cmd_1", api.OutcomeFailed, "conflict"); result.Error != "a newer revision runs" {
			t.Errorf("it says %+v", result)
		}
		if result := r.ended("cmd_2", api.OutcomeFailed, ""); result.Error != "the image is not there" || result.StartedAt == nil || result.FinishedAt == nil {
			t.Errorf("it says %+v", result)
		}
	})
}

// What the server would refuse is cut here: its 400 would lose the result.
func TestResultsAreCutToTheLimits(t *testing.T) {
	for name, c := range map[string]struct{ text, begins, ends string }{
		"short":           {"no", "no", "no"},
		"exact":           {strings.Repeat("x", api.MaxMessage), "xxx", "xxx"},
		"one more":        {strings.Repeat("x", api.MaxMessage+1), "xxx", "x …"},
		"two bytes each":  {strings.Repeat("é", api.MaxMessage), "éé", "é …"},
		"three bytes":     {"x" + strings.Repeat("€", api.MaxMessage), "x€", "€ …"},
		"four bytes":      {"xyz" + strings.Repeat("😀", api.MaxMessage), "xyz😀", "😀 …"},
		"no UTF-8":        {"x" + strings.Repeat("\xff€", 1000), "x\ufffd€", " …"},
		"NULs and quotes": {strings.Repeat("\x00\"\\<", 2000), "\x00\"", " …"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.handle = func(context.Context, string) ([]string, error) { return nil, errors.New(c.text) }
				r.take(r.stopOf("cmd_1", "a", "web"))
				r.Wait()
				got := r.ended("cmd_1", api.OutcomeFailed, "").Error
				if !utf8.ValidString(got) || len(got) > api.MaxMessage || len(got) < min(len(c.text), api.MaxMessage-8) {
					t.Errorf("%d bytes became %d, valid: %v", len(c.text), len(got), utf8.ValidString(got))
				}
				if !strings.HasPrefix(got, c.begins) || !strings.HasSuffix(got, c.ends) {
					t.Errorf("it begins with %q and ends with %q", got[:min(len(got), 10)], got[max(len(got)-10, 0):])
				}
			})
		})
	}
}

func TestLargeOutputIsLeftOut(t *testing.T) {
	bubble(t, func(r *rig) {
		r.handle = func(_ context.Context, app string) ([]string, error) {
			// Each "<" is six bytes on the wire.
			return []string{strings.Repeat("<", map[string]int{"large": 11_000, "fits": 10_000}[app])}, nil
		}
		r.take(r.stopOf("cmd_1", "a", "large"), r.stopOf("cmd_2", "a", "fits"))
		r.Wait()
		if result := r.ended("cmd_1", api.OutcomeSucceeded, ""); result.Output != nil {
			t.Errorf("%d bytes of output were kept", len(result.Output))
		}
		var output api.StopResult
		if err := json.Unmarshal(r.ended("cmd_2", api.OutcomeSucceeded, "").Output, &output); err != nil || len(output.DeploymentIDs) != 1 || len(output.DeploymentIDs[0]) != 10_000 {
			t.Errorf("the output is %v, %v", output, err)
		}
	})
}
