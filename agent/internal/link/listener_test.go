package link

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
	"github.com/beckon-fleet/beckon/e2e/kit/memnet"
	"go.uber.org/goleak"
)

// attempt is what came of one.
type attempt struct {
	events []string
	opened bool
	took   time.Duration
	err    error
}

// listen makes one attempt at a far end, in a bubble, which fails when a
// goroutine is left in it.
func listen(t *testing.T, answer http.HandlerFunc) (a attempt) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		defer serve(n, answer)()
		transport := &http.Transport{DialContext: n.Dial}
		defer transport.CloseIdleConnections()
		a = once(t.Context(), transport)
	})
	return a
}

// serve is the far end, until stop is called.
func serve(n *memnet.Net, answer http.HandlerFunc) (stop func()) {
	s := &http.Server{Handler: answer}
	go s.Serve(n)
	return func() {
		s.Close()
		time.Sleep(time.Minute) // of fake time, in which all that is at work ends
	}
}

func once(ctx context.Context, transport http.RoundTripper) (a attempt) {
	start := time.Now()
	l := Listener{URL: "http://server/", Transport: transport, Open: 10 * time.Second, Idle: 40 * time.Second}
	a.opened, a.err = l.Once(ctx, func(event string, data []byte) { a.events = append(a.events, event+" "+string(data)) })
	a.took = time.Since(start)
	return a
}

const document = "event: cursors\ndata: {}\n\n"

func stream(w http.ResponseWriter, parts ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, p := range parts {
		io.WriteString(w, p)
	}
	http.NewResponseController(w).Flush()
}

// drip writes text again and again until the reader has gone.
func drip(w http.ResponseWriter, r *http.Request, pace time.Duration, text string) {
	for r.Context().Err() == nil {
		io.WriteString(w, text)
		http.NewResponseController(w).Flush()
		select {
		case <-time.After(pace):
		case <-r.Context().Done():
		}
	}
}

// drops is a page that never ends.
func drops(pace time.Duration, kind, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		drip(w, r, pace, text)
	}
}

func TestEventsUntilSilence(t *testing.T) {
	t.Parallel()
	a := listen(t, func(w http.ResponseWriter, r *http.Request) {
		stream(w, document)
		ctx, cancel := context.WithTimeout(r.Context(), 1505*time.Second)
		defer cancel()
		drip(w, r.WithContext(ctx), 15*time.Second, ": keepalive\n\n") // comments are life too
		<-r.Context().Done()
	})
	if !a.opened || strings.Join(a.events, ", ") != "cursors {}" || a.took != 1540*time.Second || !strings.Contains(a.err.Error(), "silent for 40s") {
		t.Errorf("%+v", a)
	}
}

func TestHowStreamsEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		events string
		took   time.Duration
		says   string
	}{
		"in good order": {func(w http.ResponseWriter, _ *http.Request) { stream(w, document) }, "cursors {}", 0, "EOF"},
		"at once":       {func(w http.ResponseWriter, _ *http.Request) { stream(w) }, "", 0, "EOF"},
		"cut": {func(w http.ResponseWriter, _ *http.Request) {
			stream(w, document, "event: cursors\ndata: {\"comm")
			panic(http.ErrAbortHandler)
		}, `cursors {}, cursors {"comm`, 0, "unexpected EOF"},
		"without an answer":            {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "", 10 * time.Second, "no byte of the stream came within 10s"},
		"without a byte":               {func(w http.ResponseWriter, r *http.Request) { stream(w); <-r.Context().Done() }, "", 10 * time.Second, "no byte of the stream came within 10s"},
		"with bytes that are no event": {drops(5*time.Second, "text/event-stream", "\x1f\x8b\x08\n\n"), "", 40 * time.Second, "silent for 40s"},
		"with comments only":           {drops(15*time.Second, "text/event-stream", ": keepalive\n\n"), "", 40 * time.Second, "silent for 40s"},
		"with a line without an end":   {drops(0, "text/event-stream", "data: x"), "", 0, "token too long"},
		"with an event without an end": {drops(0, "text/event-stream", "data: x\n"), "", 0, "token too long"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := listen(t, c.answer)
			if strings.Join(a.events, ", ") != c.events || a.took != c.took || a.err == nil || !strings.Contains(a.err.Error(), c.says) {
				t.Errorf("got %+v, want %q after %v and %q", a, c.events, c.took, c.says)
			}
		})
	}
}

// page is an answer that is no stream.
func page(status int, kind, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

func TestWeather(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		says   string
		after  time.Duration
	}{
		"page":            {page(200, "text/html", "<html>\nsign in"), `status 200, text/html, beginning with "<html> sign in"`, 0},
		"page with event": {page(200, "text/html", document), "status 200, text/html", 0},
		"redirect":        {page(302, "text/html", "", "Location", "https://login.example/"), "a redirect to https://login.example/", 0},
		"gateway":         {page(502, "text/html", "<h1>Bad Gateway</h1>"), "status 502", 0},
		"no content":      {page(204, "text/event-stream", ""), "status 204", 0},
		"proxy's 407":     {page(407, "text/html", "", "Proxy-Authenticate", "Basic"), "status 407", 0},
		"overloaded":      {page(503, "text/html", "later", "Retry-After", "7"), "status 503", 7 * time.Second},
		"other type":      {page(200, "application/json", `{"commands": 1}`), "status 200, application/json", 0},
		"malformed type":  {page(200, "text/event-stream; charset", document), "status 200, text/event-stream; charset", 0},
		"a problem of somebody else": {
			page(403, "application/problem+json", `{"title": "Forbidden", "status": 403}`), "status 403", 0,
		},
		"a problem of another status": {
			page(403, "application/problem+json", `{"code": "node_revoked", "status": 200}`), "status 403", 0,
		},
		"half a problem":   {page(403, "application/problem+json", `{"code": "node_rev`), "status 403", 0},
		"brotli":           {page(200, "text/event-stream", "\x0b\x02\x80", "Content-Encoding", "br"), "status 200, text/event-stream", 0},
		"page in drops":    {drops(time.Second, "text/html", "<p>"), "status 200, text/html", 0},
		"page without end": {drops(0, "text/html", "<p>"), "status 200, text/html", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := listen(t, c.answer)
			w, ok := errors.AsType[*client.Weather](a.err)
			if a.opened || !ok || len(a.events) != 0 || w.RetryAfter != c.after || !strings.Contains(w.Error(), c.says) || a.took > time.Minute {
				t.Errorf("got %+v, want weather that says %q", a, c.says)
			}
		})
	}
}

func TestOurOwnRefusals(t *testing.T) {
	t.Parallel()
	for _, code := range []api.Code{api.UpgradeRequired, api.NodeRevoked, api.CertificateExpired, api.Unavailable} {
		body := fmt.Sprintf(`{"code": %q, "status": %d, "detail": "no"}`, code, code.Status())
		a := listen(t, page(code.Status(), "application/problem+json", body, "Retry-After", "9"))
		problem, ok := errors.AsType[*api.Error](a.err)
		if a.opened || !ok || !errors.Is(a.err, code) || problem.RetryAfter != 9*time.Second {
			t.Errorf("%s: %+v", code, a)
		}
	}
}

// A proxy that packs a stream does no harm as long as it lets it through.
func TestGzip(t *testing.T) {
	t.Parallel()
	a := listen(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		packed := gzip.NewWriter(w)
		for i := range 3 {
			var text bytes.Buffer
			fmt.Fprintf(&text, "event: cursors\ndata: {\"commands\": %d}\n\n", i)
			w.Header().Set("Content-Type", "text/event-stream")
			packed.Write(text.Bytes())
			packed.Flush()
			http.NewResponseController(w).Flush()
			time.Sleep(30 * time.Second)
		}
		packed.Close()
	})
	want := `cursors {"commands": 0}, cursors {"commands": 1}, cursors {"commands": 2}`
	if got := strings.Join(a.events, ", "); !a.opened || got != want || a.err != io.EOF || a.took != 90*time.Second {
		t.Errorf("%+v", a)
	}
}

// An endless event costs a buffer and no more.
func TestEndlessEventIsBounded(t *testing.T) {
	before := allocated()
	a := listen(t, func(w http.ResponseWriter, r *http.Request) {
		chunk := strings.Repeat("x", 64<<10)
		for i := 0; i < 1000 && r.Context().Err() == nil; i++ { // 64 MiB
			stream(w, chunk)
		}
	})
	if grown := allocated() - before; a.err == nil || grown > 8<<20 {
		t.Errorf("it took %d bytes: %v", grown, a.err)
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// Whatever it is at, an attempt ends with its context.
func TestCancel(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		dial   func(context.Context, string, string) (net.Conn, error) // nil is the far end
	}{
		"dialling": {dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
		"headers":    {answer: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		"first byte": {answer: func(w http.ResponseWriter, r *http.Request) { stream(w); <-r.Context().Done() }},
		"an event":   {answer: func(w http.ResponseWriter, r *http.Request) { stream(w, document); <-r.Context().Done() }},
		"half of it": {answer: func(w http.ResponseWriter, r *http.Request) { stream(w, document, "data: "); <-r.Context().Done() }},
		"a page":     {answer: drops(time.Minute, "text/html", "<p>")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := memnet.New()
				defer serve(n, c.answer)()
				transport := &http.Transport{DialContext: n.Dial}
				if c.dial != nil {
					transport.DialContext = c.dial
				}
				defer transport.CloseIdleConnections()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if a := once(ctx, transport); a.err == nil || a.took != 5*time.Second {
					t.Errorf("%+v", a)
				}
			})
		})
	}
}

// Nothing is left of 200 attempts on a real network, however they end.
func TestNothingIsLeft(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	answers := []http.HandlerFunc{
		func(w http.ResponseWriter, _ *http.Request) { stream(w, document) },
		func(w http.ResponseWriter, r *http.Request) { stream(w, document); <-r.Context().Done() },
		page(403, "text/html", "<p>"),
		func(w http.ResponseWriter, _ *http.Request) { stream(w, document); panic(http.ErrAbortHandler) },
	}
	next := 0
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answers[next%len(answers)](w, r) })}
	go s.Serve(listener)
	defer s.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for ; next < 200; next++ {
		ctx, cancel := context.WithCancel(t.Context())
		l := Listener{URL: "http://" + listener.Addr().String(), Transport: transport, Open: time.Minute, Idle: time.Minute}
		if _, err := l.Once(ctx, func(string, []byte) { cancel() }); err == nil {
			t.Error("an attempt ended without a word")
		}
		cancel()
	}
}
