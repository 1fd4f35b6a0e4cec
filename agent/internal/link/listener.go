package link

import (
	"context"
	"io"
	"mime"
	"net/http"
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
// reason; opened says whether it ever was one. The caller owns the pace.
func (l *Listener) Once(ctx context.Context, on func(event string, data []byte)) (opened bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := sse.NewClient(l.URL, sse.ClientMaxBufferSize(maxEvent))
	c.ReconnectStrategy = &backoff.StopBackOff{}
	c.Connection = &http.Client{
		Transport:     &watch{l.Transport, l.Open, l.Idle},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.ResponseValidator = func(_ *sse.Client, answer *http.Response) error {
		kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
		opened = answer.StatusCode == http.StatusOK && kind == "text/event-stream"
		if opened {
			return nil
		}
		return refused(answer)
	}
	err = c.SubscribeRawWithContext(ctx, func(e *sse.Event) {
		if len(e.Data) > 0 {
			on(string(e.Event), e.Data)
		}
	})
	if err == nil {
		err = io.EOF
	}
	return opened, err
}

func refused(answer *http.Response) error {
	defer answer.Body.Close() // the library does not
	body, err := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
	if err != nil {
		return err
	}
	return client.Refusal(answer, body)
}

// watch ends a request that is silent for too long. A timer on the response
// alone would miss a proxy that accepts and never answers.
type watch struct {
	http.RoundTripper
	open, idle time.Duration
}

func (w *watch) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	timer := time.AfterFunc(w.open, cancel)
	answer, err := w.RoundTripper.RoundTrip(r.Clone(ctx))
	if err != nil {
		timer.Stop()
		cancel()
		return nil, err
	}
	answer.Body = &watchedBody{answer.Body, timer, w.idle, cancel}
	return answer, nil
}

type watchedBody struct {
	io.ReadCloser
	timer  *time.Timer
	idle   time.Duration
	cancel context.CancelFunc
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.timer.Reset(b.idle)
	}
	return n, err
}

func (b *watchedBody) Close() error {
	b.timer.Stop()
	b.cancel()
	return b.ReadCloser.Close()
}
