package nudge_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/e2e/kit/memnet"
	"github.com/beckon-fleet/beckon/server/internal/nudge"
	"go.uber.org/goleak"
)

// fixture is a hub behind a real HTTP server, in a bubble, which fails when a
// goroutine is left in it. The node is the path's.
type fixture struct {
	*nudge.Hub
	client  *http.Client
	version atomic.Int64  // the newest document; below 0 it cannot be read
	slow    time.Duration // what each flush takes
	serving sync.WaitGroup
	stop    context.CancelFunc
}

// greedy is a node whose documents are so large that a few fill all buffers on
// the way to a reader who does not read.
const greedy = "/greedy"

// each runs do over HTTP/1.1 and HTTP/2, which treat deadlines differently.
func each(t *testing.T, do func(*testing.T, *fixture)) {
	for _, name := range []string{"http1", "http2"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var protocols http.Protocols
				protocols.SetHTTP1(name == "http1")
				protocols.SetUnencryptedHTTP2(name == "http2")
				n := memnet.New()
				transport := &http.Transport{DialContext: n.Dial, Protocols: &protocols}
				f := &fixture{Hub: nudge.NewHub(), client: &http.Client{Transport: transport}}
				s := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(f.serve)}
				go s.Serve(n)
				defer time.Sleep(time.Minute) // of fake time, in which all that is at work ends
				defer s.Close()
				defer transport.CloseIdleConnections()
				var ctx context.Context
				ctx, f.stop = context.WithCancel(t.Context())
				defer f.stop()
				go f.Streams.Run(ctx)
				do(t, f)
			})
		})
	}
}

func (f *fixture) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/heartbeat" { // which nudges, as what a call changes may
		f.Nudge(greedy)
		return
	}
	document := func() []byte {
		text := strconv.AppendInt(nil, f.version.Load(), 10)
		switch {
		case text[0] == '-':
			return nil
		case r.URL.Path == greedy:
			text = append(text, bytes.Repeat([]byte{' '}, 200<<10)...)
		}
		return text
	}
	f.serving.Add(1)
	defer f.serving.Done()
	w = early{w, func() { f.Nudge(r.URL.Path) }, f.slow}
	if err := f.Streams.Serve(w, r, r.URL.Path, document); err != nil {
		http.Error(w, err.Error(), api.AsError(err).Status)
	}
}

// early nudges when the library sets headers, which is before it has
// registered the reader: what is published then reaches nobody. With slow,
// each flush takes a while.
type early struct {
	http.ResponseWriter
	nudge func()
	slow  time.Duration
}

func (e early) Header() http.Header {
	e.nudge()
	return e.ResponseWriter.Header()
}

func (e early) FlushError() error {
	time.Sleep(e.slow)
	return http.NewResponseController(e.ResponseWriter).Flush()
}

func (e early) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// open asks for the stream of a node.
func (f *fixture) open(t *testing.T, target string, header http.Header) (answer *http.Response, hangUp func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", "http://server"+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	answer, err = f.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return answer, cancel
}

// stream opens a stream and returns its events as "name data"; the channel is
// closed when the stream ends.
func (f *fixture) stream(t *testing.T, target string) (events chan string, hangUp func()) {
	t.Helper()
	answer, hangUp := f.open(t, target, http.Header{})
	return read(answer.Body), hangUp
}

func read(body io.ReadCloser) (events chan string) {
	events = make(chan string, 1000)
	go func() {
		defer close(events)
		defer body.Close()
		name, data := "", ""
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if s, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				name = s
			}
			if s, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				data = strings.TrimSpace(s)
			}
			if lines.Text() == "" && data != "" {
				events <- name + " " + data
				name, data = "", ""
			}
		}
	}()
	return events
}

// drain returns what has arrived once nothing moves any more.
func drain(events chan string) (all []string) {
	synctest.Wait()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return append(all, "end")
			}
			all = append(all, e)
		default:
			return all
		}
	}
}

// expect is drain for a test that knows what is to come.
func expect(t *testing.T, what string, events chan string, want string) {
	t.Helper()
	if got := strings.Join(drain(events), ", "); got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestEveryConnectGetsTheDocumentFirst(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for i := range 100 {
			events, hangUp := f.stream(t, "/web-1")
			expect(t, "connect "+strconv.Itoa(i), events, "cursors 0")
			hangUp()
			synctest.Wait()
		}
	})
}

func TestNewestOfABurstArrives(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		events, hangUp := f.stream(t, "/web-1")
		defer hangUp()
		drain(events)
		for range 100 {
			for range 10 {
				f.version.Add(1)
				f.Nudge("/web-1")
			}
			got := drain(events)
			if want := "cursors " + strconv.FormatInt(f.version.Load(), 10); len(got) == 0 || got[len(got)-1] != want {
				t.Fatalf("want %q last, got %q", want, got)
			}
		}
	})
}

// However many nudges come while one event is on its way, one more follows it.
func TestManyNudgesAreFewEvents(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.slow = time.Second
		events, hangUp := f.stream(t, "/web-1")
		defer hangUp()
		time.Sleep(5 * time.Second)
		drain(events)
		for range 1000 {
			f.version.Add(1)
			f.Nudge("/web-1")
		}
		time.Sleep(5 * time.Second)
		expect(t, "1,000 nudges", events, "cursors 1, cursors 1000")
		for range 1000 {
			f.Nudge("/web-1")
		}
		time.Sleep(5 * time.Second)
		expect(t, "1,000 nudges of no news", events, "")
	})
}

func TestIdleStreamLivesOn(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		events, hangUp := f.stream(t, "/web-1")
		defer hangUp()
		time.Sleep(time.Hour)
		f.version.Add(1)
		f.Nudge("/web-1")
		expect(t, "after an idle hour", events, "cursors 0, cursors 1")
	})
}

// A document that cannot be read now comes with the next keepalive.
func TestUnreadableDocument(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.version.Store(-1)
		answer, hangUp := f.open(t, "/web-1", http.Header{})
		defer hangUp()
		events := read(answer.Body)
		expect(t, "at first", events, "")
		f.version.Store(7)
		time.Sleep(15 * time.Second)
		expect(t, "with the next keepalive", events, "cursors 7")
		if got := answer.Header; got.Get("X-Accel-Buffering") != "no" || got.Get("Cache-Control") != "no-store, no-transform" ||
			got.Get("Content-Type") != "text/event-stream" {
			t.Errorf("headers: %v", got)
		}
	})
}

func TestStreamsSayWhyTheyEnd(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		first, _ := f.stream(t, "/web-1")
		other, hangUp := f.stream(t, "/web-2")
		defer hangUp()
		drain(first)
		second, _ := f.stream(t, "/web-1")
		expect(t, "the older stream", first, "replaced {}, end")
		f.Revoke("/web-1")
		expect(t, "the revoked stream", second, "cursors 0, revoked {}, end")
		expect(t, "another node's stream", other, "cursors 0")
		f.stop()
		expect(t, "a stopping server", other, "end")
		answer, _ := f.open(t, "/web-1", http.Header{})
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "shutting down") {
			t.Errorf("a closed hub: %d, %s", answer.StatusCode, body)
		}
	})
}

// What the caller asks for besides its stream has no say in which it gets, and
// none in what is repeated.
func TestStreamIsChosenByTheServer(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		other, hangUp := f.stream(t, "/web-2")
		defer hangUp()
		drain(other)
		for _, query := range []string{"?stream=%2Fweb-2", "?stream=", "?stream=nobody&stream=%2Fweb-2"} {
			for _, last := range []string{"", "7", "-1", "nonsense", "99999999999999999999"} {
				answer, hangUp := f.open(t, "/web-1"+query, http.Header{"Last-Event-Id": {last}})
				events := read(answer.Body)
				expect(t, query+" after "+last, events, "cursors 0")
				f.Nudge("/web-2")
				expect(t, query+" after another's nudge", events, "")
				hangUp()
				synctest.Wait()
			}
		}
		expect(t, "the other stream", other, "")
	})
}

// stall opens a stream that nobody reads, and fills it.
func (f *fixture) stall(t *testing.T) *http.Response {
	t.Helper()
	answer, hangUp := f.open(t, greedy, http.Header{})
	t.Cleanup(hangUp)
	for range 100 {
		f.version.Add(1)
		f.Nudge(greedy)
		synctest.Wait()
	}
	return answer
}

// Who does not read is cut, and nobody else notices.
func TestStalledReaderDelaysNobody(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		other, hangUp := f.stream(t, "/web-2")
		defer hangUp()
		drain(other)
		start := time.Now()
		stalled := f.stall(t)
		f.Nudge("/web-2")
		expect(t, "another node's stream", other, "cursors 100")
		answer, _ := f.open(t, "/heartbeat", http.Header{})
		answer.Body.Close()
		if took := time.Since(start); took != 0 {
			t.Errorf("the nudges and the call took %v", took)
		}
		time.Sleep(6 * time.Second)
		if _, err := io.Copy(io.Discard, stalled.Body); err == nil {
			t.Error("a stream that nobody reads was not cut")
		}
		stalled.Body.Close()
		again, hangUpAgain := f.stream(t, greedy)
		defer hangUpAgain()
		expect(t, "the node's next stream", again, "cursors 100")
	})
}

// A server that stops waits for who does not read as long as for one write.
func TestStopWithStalledReaders(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.stall(t)
		start := time.Now()
		f.Revoke(greedy)
		f.stop()
		f.serving.Wait()
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// Nothing is left of 200 streams on a real network, however they end.
func TestNothingIsLeft(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	f := &fixture{Hub: nudge.NewHub()}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(f.serve)}
	go s.Serve(listener)
	defer s.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	f.client = &http.Client{Transport: transport}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Streams.Run(ctx)
	}()
	for i := range 200 {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+listener.Addr().String()+"/web-"+strconv.Itoa(i%3), nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := f.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		events := read(answer.Body)
		if first := <-events; first != "cursors 0" {
			t.Fatalf("stream %d began with %q", i, first)
		}
		switch i % 4 {
		case 0:
			f.Revoke("/web-" + strconv.Itoa(i%3))
		case 1:
			answer.Body.Close()
		} // else the next one replaces it, or the end of the server ends it
	}
	stop()
	<-done
}
