package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/link"
	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
)

// The rungs of the ladder, the best first (PROTOCOL.md section 4). On each the
// same work is done, only later.
const (
	rungStream   = "stream"
	rungLongPoll = "long_poll"
	rungInterval = "interval"
)

const (
	streamAgain   = 10 * time.Minute // after a stream that did not work
	downAgain     = time.Minute      // at most, after nothing works at all: that says little about streams
	replacedPause = time.Minute      // after another process of this node took the stream over
	comeBack      = 5 * time.Second  // within which a stream that ended is opened again, spread over the fleet
	brief         = api.Keepalive    // what a stream lives at least on a way that bears streams
	maxBrief      = 3                // streams in a row that did not
)

// watch has the node woken on the best rung that works. It is one loop, so that
// there is never more than one request that waits.
func (a *Agent) watch(ctx context.Context) (time.Duration, error) {
	if a.cfg.NoStream {
		return 0, a.poll(ctx, "the stream is switched off")
	}
	if time.Now().Before(a.streamAt) {
		return 0, a.poll(ctx, a.noStream)
	}
	began := time.Now()
	worked, err := a.listen(ctx)
	if a.briefs++; !worked || time.Since(began) >= brief {
		a.briefs = 0
	}
	switch {
	case ctx.Err() != nil, errors.Is(err, link.ErrChanged):
		return 0, nil
	case worked && a.briefs < maxBrief:
		a.cfg.Log.Debug("stream ended; opening it again", "err", err)
		return rand.N(comeBack), nil
	case worked:
		err = fmt.Errorf("it was cut within %v, %d times in a row: %w", brief, maxBrief, err)
	case verdict(err):
		a.climb(rungInterval, err.Error())
		return 0, err
	}
	if reason := "no stream: " + err.Error(); a.noStream != reason {
		a.noStream = reason
		a.cfg.Log.Warn("the event stream does not work; polling instead", "stream_again_in", streamAgain.String(), "err", err)
	}
	a.briefs, a.streamAt = 0, time.Now().Add(streamAgain)
	return 0, a.poll(ctx, a.noStream)
}

// verdict reports whether our own server said no to all that we might ask:
// then another rung helps nothing.
func verdict(err error) bool {
	problem, ours := errors.AsType[*api.Error](err)
	return ours && problem.Next() != api.ThenGiveUp
}

// listen holds the stream open and says whether it ever carried anything.
func (a *Agent) listen(ctx context.Context) (worked bool, err error) {
	_, err = a.link.Listen(ctx, func(event string, data []byte) {
		switch event {
		case api.StreamCursors:
			var cursors api.Cursors
			if json.Unmarshal(data, &cursors) != nil {
				return // what a proxy made of it is no event of ours
			}
			worked, a.noStream = true, ""
			a.climb(rungStream, "")
			a.notice(cursors)
		case api.StreamReplaced:
			a.streamAt, a.noStream = time.Now().Add(replacedPause), "another process of this node has the stream"
		case api.StreamRevoked:
			a.beatNow.raise() // the answer says it in words that count
		}
	})
	return worked, err
}

// poll waits at the server until the cursors change, and returns when the
// stream is to be tried again. An error means that not even that works. reason
// is why it is no stream.
func (a *Agent) poll(ctx context.Context, reason string) error {
	tag := ""
	for ctx.Err() == nil && (a.cfg.NoStream || time.Now().Before(a.streamAt)) {
		asked := time.Now()
		// Polls that a server ended together must not end together for ever.
		wait := a.cfg.Pace.Poll - rand.N(a.cfg.Pace.Poll/4)
		req := api.CursorsRequest{WaitS: int(wait.Seconds()), Have: tag}
		res, err := link.Call(ctx, a.link, api.GetCursors, req, a.cfg.Pace.Poll)
		pause := 50 * time.Millisecond // what a forging proxy may cost
		switch {
		case errors.Is(err, client.ErrNotModified):
			if time.Since(asked) < time.Second {
				pause = time.Second
			}
		case err != nil:
			if tag != "" {
				rest(ctx, rand.N(comeBack)) // it worked: others may have lost it at the same moment
			}
			if soon := time.Now().Add(downAgain); a.streamAt.After(soon) {
				a.streamAt = soon
			}
			a.pollsFail = true
			a.climb(rungInterval, fmt.Sprintf("%s; no long poll: %v", reason, err))
			return err
		default:
			tag = res.ETag()
			a.notice(res.Cursors)
		}
		if a.pollsFail && req.Have == "" {
			continue // that one had no need to wait, and proves nothing
		}
		a.climb(rungLongPoll, reason)
		if a.pollsFail {
			a.pollsFail = false
			return nil // so that this counts as a success
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// climb notes the rung, why it is no better one, and since when.
func (a *Agent) climb(rung, reason string) {
	now := a.link.Now().UTC()
	a.mu.Lock()
	defer a.mu.Unlock()
	w := &a.noticed.wake
	if w.Rung != rung {
		*w = api.Wake{Rung: rung, Since: &now}
	}
	w.Reason = api.Cut(reason, 255)
}
