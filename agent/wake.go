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
	replacedPause = time.Minute      // after another process of this node took the stream over
	comeBack      = 5 * time.Second  // within which a stream that ended is opened again, spread over the fleet
)

// watch has the node woken on the best rung that works. It is one loop, so that
// there is never more than one request that waits.
func (a *Agent) watch(ctx context.Context) (time.Duration, error) {
	if a.cfg.NoStream || time.Now().Before(a.streamAt) {
		return 0, a.poll(ctx)
	}
	worked, err := a.listen(ctx)
	switch {
	case ctx.Err() != nil:
		return 0, nil
	case worked:
		a.cfg.Log.Debug("stream ended; opening it again", "err", err)
		return rand.N(comeBack), nil
	case verdict(err):
		a.climb(rungInterval, err.Error())
		return 0, err
	}
	a.streamAt = time.Now().Add(streamAgain)
	a.climb(rungLongPoll, "no stream: "+err.Error())
	a.cfg.Log.Warn("event stream does not work; polling instead", "stream_again_in", streamAgain.String(), "err", err)
	return 0, nil
}

// verdict reports whether our own server said no: then another rung helps
// nothing.
func verdict(err error) bool {
	_, ours := errors.AsType[*api.Error](err)
	return ours
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
			worked = true
			a.climb(rungStream, "")
			a.notice(cursors)
		case api.StreamReplaced:
			a.streamAt = time.Now().Add(replacedPause)
			a.climb(rungLongPoll, "another process of this node has the stream")
		case api.StreamRevoked:
			a.beatNow.raise() // the answer says it in words that count
		}
	})
	return worked, err
}

// poll waits at the server until the cursors change, and returns when the
// stream is to be tried again. An error means that not even that works.
func (a *Agent) poll(ctx context.Context) error {
	tag := ""
	for ctx.Err() == nil && (a.cfg.NoStream || time.Now().Before(a.streamAt)) {
		asked := time.Now()
		req := api.CursorsRequest{WaitS: int(a.cfg.Pace.Poll.Seconds()), Have: tag}
		res, err := link.Call(ctx, a.link, api.GetCursors, req, a.cfg.Pace.Poll)
		pause := 50 * time.Millisecond // what a forging proxy may cost
		switch {
		case errors.Is(err, client.ErrNotModified):
			if time.Since(asked) < time.Second {
				pause = time.Second
			}
		case err != nil:
			a.climb(rungInterval, fmt.Sprintf("no long poll: %v", err))
			return err
		default:
			tag = res.ETag()
			a.notice(res.Cursors)
		}
		a.climb(rungLongPoll, "")
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// climb notes the rung, why it is no better one, and since when. "" keeps the
// reason of the same rung.
func (a *Agent) climb(rung, reason string) {
	now := a.link.Now().UTC()
	a.mu.Lock()
	defer a.mu.Unlock()
	w := &a.noticed.wake
	if w.Rung != rung {
		*w = api.Wake{Rung: rung, Since: &now}
	}
	if reason != "" || rung == rungStream {
		w.Reason = api.Cut(reason, 255)
	}
}
