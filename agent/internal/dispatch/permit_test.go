package dispatch_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/journal"
	"github.com/beckon-fleet/beckon/api"
)

// behind has a command wait for so long behind another one of its lane.
func (r *rig) behind(wait time.Duration, change func(*api.Command)) {
	r.t.Helper()
	r.handle = func(ctx context.Context, app string) ([]string, error) {
		if app == "first" {
			return nil, sleep(ctx, wait)
		}
		return nil, nil
	}
	c := r.command("cmd_2", "stop", names("a", "second"))
	if change != nil {
		change(&c)
	}
	r.take(r.stopOf("cmd_1", "a", "first"), r.item(c))
	synctest.Wait()
}

func (r *rig) asks(id string) (n int) {
	r.note(func() {
		for _, one := range r.asked {
			if one == id {
				n++
			}
		}
	})
	return n
}

// A machine that was restored from a snapshot must not run what has run: a
// permit is good for a minute.
func TestOldPermitIsAskedAgain(t *testing.T) {
	for wait, asks := range map[time.Duration]int{59 * time.Second: 1, time.Minute: 2, time.Hour: 2} {
		bubble(t, func(r *rig) {
			r.behind(min(wait, 4*time.Minute), nil)
			r.Wait()
			r.saw("first", "second")
			if r.asks("cmd_1") != 1 || r.asks("cmd_2") != asks {
				t.Errorf("after %v it was asked for %d times", wait, r.asks("cmd_2"))
			}
		})
	}
}

func TestPermitOfAnEarlierProcessIsAskedAgain(t *testing.T) {
	bubble(t, func(r *rig) {
		r.behind(time.Second, nil)
		r.restart() // at once
		r.Wait()
		r.saw("first", "first", "second")
		if r.asks("cmd_1") != 2 || r.asks("cmd_2") != 2 {
			t.Errorf("asked was for %v", r.asked)
		}
	})
}

func TestPermitThatIsTakenBack(t *testing.T) {
	for _, code := range []api.Code{api.AckedElsewhere, api.CommandLost, api.CommandFinished, api.NotFound} {
		t.Run(string(code), func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.behind(2*time.Minute, nil)
				r.answers(func(string) error { return api.Errorf(code, "no more") })
				r.Wait()
				r.restart()
				r.take()
				r.Wait()
				r.saw("first")
				r.at("cmd_2", journal.Refused)
				if e := r.entry("cmd_2"); e.Reason != string(code) || e.Result != nil {
					t.Errorf("got %+v", e)
				}
			})
		})
	}
}

// The same for what had begun: it does not go on, and that is told.
func TestPermitOfABegunCommandThatIsTakenBack(t *testing.T) {
	bubble(t, func(r *rig) {
		r.handle = r.slowly
		r.take(r.stopOf("cmd_1", "a", "web"))
		synctest.Wait()
		r.answers(func(string) error { return api.Errorf(api.CommandLost, "given up") })
		r.restart()
		r.Wait()
		r.saw("web")
		r.at("cmd_1", journal.Refused)
		r.noticed("command_interrupted", "cmd_1")
	})
}

// No answer is waiting, for as long as it takes.
func TestUnreachableServerWhileAsking(t *testing.T) {
	bubble(t, func(r *rig) {
		back := time.Now().Add(5 * time.Hour)
		r.behind(2*time.Minute, nil)
		r.answers(func(string) error {
			if time.Now().Before(back) {
				return errNoAnswer
			}
			return nil
		})
		r.Wait()
		r.saw("first", "second")
		e := r.entry("cmd_2")
		if e.StartedAt.Before(back) || e.StartedAt.After(back.Add(10*time.Minute)) || !e.AcceptedAt.Equal(e.StartedAt) {
			t.Errorf("the server was back at %v, and it says %+v", back, e)
		}
		r.ended("cmd_2", api.OutcomeSucceeded, "")
	})
}

func TestShutdownWhileAsking(t *testing.T) {
	bubble(t, func(r *rig) {
		r.behind(2*time.Minute, nil)
		r.answers(func(string) error { return errNoAnswer })
		time.Sleep(10 * time.Minute)
		r.restart()
		synctest.Wait()
		r.saw("first")
		r.at("cmd_2", journal.Accepted)
		r.answers(func(string) error { return nil })
		r.Wait()
		r.ended("cmd_2", api.OutcomeSucceeded, "")
	})
}

func TestStartBy(t *testing.T) {
	for name, c := range map[string]struct {
		wait, startBy time.Duration
		late          bool
	}{
		"long before":         {0, time.Minute, false},
		"just in time":        {30 * time.Second, 30 * time.Second, false},
		"a moment late":       {30*time.Second + 1, 30 * time.Second, true},
		"passed when it came": {0, -time.Second, true},
		"passed while asking": {2 * time.Minute, 2*time.Minute + 5*time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				until := time.Now().Add(c.startBy).UTC()
				r.behind(c.wait, func(cmd *api.Command) { cmd.StartBy = &until })
				if name == "passed while asking" {
					back := until.Add(time.Second)
					r.answers(func(string) error {
						if time.Now().Before(back) {
							return errNoAnswer
						}
						return nil
					})
				}
				r.Wait()
				if !c.late {
					r.ended("cmd_2", api.OutcomeSucceeded, "")
					return
				}
				result := r.ended("cmd_2", api.OutcomeRejected, "too_late")
				if !strings.Contains(result.Error, until.Format(time.RFC3339)) || result.StartedAt != nil {
					t.Errorf("it says %+v", result)
				}
				r.saw("first")
			})
		})
	}
}

// What has begun in time goes on after it.
func TestStartByIsOfTheStart(t *testing.T) {
	bubble(t, func(r *rig) {
		r.handle = r.slowly
		until := time.Now().Add(time.Second)
		c := r.command("cmd_1", "stop", names("a", "web"))
		c.StartBy = &until
		r.take(r.item(c))
		time.Sleep(10 * time.Second)
		r.restart()
		r.Wait()
		r.ended("cmd_1", api.OutcomeSucceeded, "")
	})
}

// The server alone judges expiry: what it has acked never expires here.
func TestAckedCommandDoesNotExpire(t *testing.T) {
	bubble(t, func(r *rig) {
		r.answers(func(string) error { return errNoAnswer })
		item := r.stopOf("cmd_1", "a", "web")
		if err := r.Take(r.ctx, []json.RawMessage{item}); err == nil {
			t.Error("nobody answered")
		}
		time.Sleep(30 * 24 * time.Hour)
		r.answers(func(string) error { return nil })
		r.take()
		r.Wait()
		r.ended("cmd_1", api.OutcomeSucceeded, "")
		if !slices.Equal(r.asked, []string{"cmd_1", "cmd_1"}) {
			t.Errorf("asked was for %v", r.asked)
		}
	})
}
