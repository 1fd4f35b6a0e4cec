package link

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/beckon-fleet/beckon/api/client"
	sse "github.com/r3labs/sse/v2"
	"gopkg.in/cenkalti/backoff.v1"
)

const maxEvent = 16 << 10

// Listener opens event streams. It wraps r3labs/sse so that its defects are
// not met: each stream has a fresh client that never retries by itself.
type Listener struct {
	URL       string
	Transport http.RoundTripper
	Open      time.Duration // until the first byte; some proxies hold even the headers back
	Idle      time.Duration // of silence after which a stream is dead
}

// Once makes one attempt and returns when the stream ends, whatever the
// reason; opened says whether it ever was one. The caller owns the pace. The
// last event of a stream that was cut may be cut too.
func (l *Listener) Once(ctx context.Context, on func(event string, data []byte)) (opened bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &watch{RoundTripper: l.Transport, open: l.Open, idle: l.Idle}
	c := sse.NewClient(l.URL, sse.ClientMaxBufferSize(maxEvent))
	c.ReconnectStrategy = &backoff.StopBackOff{}
	c.Connection = &http.Client{
		Transport:     w,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.ResponseValidator = func(_ *sse.Client, answer *http.Response) error {
		if opened = isStream(answer); opened {
			return nil
		}
		return refused(answer)
	}
	err = c.SubscribeRawWithContext(ctx, func(e *sse.Event) {
		if len(e.Data) > 0 {
			w.heard.Store(true)
			on(string(e.Event), e.Data)
		}
	})
	if err == nil {
		err = io.EOF
	}
	return opened, err
}

// isStream tells a stream from a page. What is encoded so that the transport
// could not decode it holds no event that we could read.
func isStream(answer *http.Response) bool {
	kind, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	return err == nil && answer.StatusCode == http.StatusOK && kind == "text/event-stream" && answer.Header.Get("Content-Encoding") == ""
}

func refused(answer *http.Response) error {
	defer answer.Body.Close()                                 // the library does not
	body, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10)) // half a page is one as well
	return client.Refusal(answer, body)
}

// watch ends a request that is silent for too long. A timer on the response
// alone would miss a proxy that accepts and never answers. Bytes are life once
// an event was heard: until then they may be anything.
type watch struct {
	http.RoundTripper
	open, idle time.Duration
	heard      atomic.Bool
}

func (w *watch) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(w.open, func() {
		cancel(fmt.Errorf("no byte of the stream came within %v: a proxy may hold it back", w.open))
	})
	answer, err := w.RoundTripper.RoundTrip(r.Clone(ctx))
	if err != nil {
		timer.Stop()
		defer cancel(nil)
		return nil, because(ctx, err)
	}
	answer.Body = &watchedBody{ReadCloser: answer.Body, watch: w, opening: timer, ctx: ctx, cancel: cancel}
	return answer, nil
}

// because says why ctx ended, where it was our own doing.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

type watchedBody struct {
	io.ReadCloser
	watch   *watch
	opening *time.Timer
	silence *time.Timer // nil before the first byte
	ctx     context.Context
	cancel  context.CancelCauseFunc
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case n == 0:
	case b.silence == nil:
		b.opening.Stop()
		b.silence = time.AfterFunc(b.watch.idle, func() {
			b.cancel(fmt.Errorf("the stream was silent for %v", b.watch.idle))
		})
	case b.watch.heard.Load():
		b.silence.Reset(b.watch.idle)
	}
	if err != nil && err != io.EOF {
		err = because(b.ctx, err)
	}
	return n, err
}

func (b *watchedBody) Close() error {
	b.opening.Stop()
	if b.silence != nil {
		b.silence.Stop()
	}
	b.cancel(nil)
	return b.ReadCloser.Close()
}
