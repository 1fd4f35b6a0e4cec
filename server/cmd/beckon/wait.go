package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
	"github.com/beckon-fleet/beckon/internal/cli"
	urfave "github.com/urfave/cli/v2"
)

const (
	// firstWait is how long the server is asked to wait by itself: enough for
	// what goes quickly, and short enough that progress shows.
	firstWait = 3 * time.Second

	firstPause   = 250 * time.Millisecond
	longestPause = time.Second
)

func waitFlags(timeout time.Duration) []urfave.Flag {
	return []urfave.Flag{
		&urfave.DurationFlag{Name: "timeout", Value: timeout, Usage: "wait for the outcome at most `TIME`"},
		&urfave.BoolFlag{Name: "detach", Usage: "do not wait for the outcome"},
	}
}

// patience is how long a verb waits for its outcome, and until when.
type patience struct {
	timeout time.Duration // 0 is not at all
	end     time.Time
}

func (op *operator) patience() (patience, error) {
	if op.Bool("detach") {
		return patience{}, nil
	}
	timeout := op.Duration("timeout")
	if timeout <= 0 {
		return patience{}, cli.Usagef("--timeout: %s is not above 0; --detach does not wait", timeout)
	}
	return patience{timeout, time.Now().Add(timeout)}, nil
}

// first is what the first request asks the server to wait.
func (p patience) first() time.Duration { return min(p.timeout, firstWait) }

// await looks until look says that all is over, or until there is no more
// patience. A server that cannot be reached meanwhile is asked again; when it
// stays away, that is the error.
func (op *operator) await(ctx context.Context, p patience, look func(context.Context) (done bool, err error)) (bool, error) {
	limited, cancel := context.WithDeadline(ctx, p.end)
	defer cancel()
	var trouble error
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		select {
		case <-limited.Done():
			return false, cmp.Or(ctx.Err(), trouble)
		case <-time.After(pause):
		}
		done, err := look(limited)
		switch {
		case err == nil && done:
			return true, nil
		case err == nil:
			trouble = nil
		case limited.Err() != nil: // the end of waiting, seen from within a call
		case !passes(err):
			return false, err
		default:
			if trouble == nil {
				op.tell("%v; trying on", err)
			}
			trouble = err
		}
	}
}

// cutOff is the error of a first request. One that was interrupted may have
// been carried out.
func cutOff(ctx context.Context, err error, see string) error {
	if ctx.Err() == nil {
		return err
	}
	return cli.WithHint(err, "it may have begun all the same; `"+see+"` shows it")
}

// goesOn is what to know of that for which nobody waits any more.
func goesOn(see string) string { return "it goes on by itself; `" + see + "` shows how far it is" }

// passes reports whether a later try may go better.
func passes(err error) bool {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.Code.Then() == api.ThenRetry
	}
	_, pin := errors.AsType[*client.PinError](err)
	return !pin
}

// progress says line about subject, unless key is still the one it had.
func (op *operator) progress(subject, key, line string) {
	if op.said[subject] != key {
		op.said[subject] = key
		op.tell("%s: %s", subject, line)
	}
}

// awaitCommands waits until all of them have ended, and brings them up to date.
func (op *operator) awaitCommands(ctx context.Context, p patience, commands []document[api.CommandStatus]) error {
	if p.timeout == 0 || ended(commands) {
		return nil
	}
	for _, c := range commands {
		if !c.Value.State.Ended() {
			op.standing(c.Value)
		}
	}
	_, err := op.await(ctx, p, func(ctx context.Context) (bool, error) {
		for i, c := range commands {
			if c.Value.State.Ended() {
				continue
			}
			now, err := call(ctx, op, api.GetCommand, api.CommandRequest{ID: c.Value.ID})
			if err != nil {
				return false, err
			}
			commands[i] = now
			op.standing(now.Value)
		}
		return ended(commands), nil
	})
	return err
}

// standing says where a command stands, and why.
func (op *operator) standing(c api.CommandStatus) {
	op.progress(nodeOf(c), string(c.State), c.Kind+" "+commandState(c)+because(why(c)))
}

func ended(commands []document[api.CommandStatus]) bool {
	for _, c := range commands {
		if !c.Value.State.Ended() {
			return false
		}
	}
	return true
}

// verdict is the error that the state of commands amounts to: one that failed
// weighs more than one that is still open.
func (op *operator) verdict(p patience, what, hint string, commands []document[api.CommandStatus]) error {
	var bad, open []string
	for _, c := range commands {
		switch s := c.Value.State; {
		case !s.Ended():
			open = append(open, fmt.Sprintf("%s (%s)", nodeOf(c.Value), s))
		case s != api.Succeeded:
			op.standing(c.Value)
			bad = append(bad, fmt.Sprintf("%s (%s)", nodeOf(c.Value), commandState(c.Value)))
		}
	}
	switch {
	case len(bad) > 0:
		return cli.Failedf("%s did not succeed on %s", what, strings.Join(bad, ", "))
	case len(open) > 0 && p.timeout > 0:
		return cli.WithHint(cli.TimedOutf("after %s, %s is still going on, on %s",
			cli.Plain(p.timeout.String()), what, strings.Join(open, ", ")), hint)
	}
	return nil
}

// because sets a reason, of one line or several, behind what it explains.
func because(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	first, rest, more := strings.Cut(text, "\n")
	if !more {
		return ": " + first
	}
	return ": " + first + "\n" + indent(rest)
}
