package event_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/e2e/kit/memnet"
	"github.com/beckon-fleet/beckon/server/internal/rest"
	"github.com/beckon-fleet/beckon/server/internal/servertest"
)

// reader reads the events call, bound as package server binds it.
type reader struct {
	t      *testing.T
	net    *memnet.Net
	client *http.Client
	stop   chan struct{} // closed, it stops the server
}

func newReader(t *testing.T, f *servertest.Fleet) *reader {
	s := &reader{t: t, net: memnet.New(), stop: make(chan struct{})}
	f.Events.Stopping = s.stop
	r := rest.NewRouter(true)
	rest.Bind(r, api.ListEvents, f.Events.List,
		rest.As[api.ListEventsRequest, api.Page[api.Event]]("application/x-ndjson", f.Events.NDJSON),
		rest.As[api.ListEventsRequest, api.Page[api.Event]]("text/event-stream", f.Events.SSE))
	web := &http.Server{Handler: r}
	go web.Serve(s.net)
	transport := &http.Transport{DialContext: s.net.Dial}
	s.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		web.Close()
		time.Sleep(time.Minute) // of fake time, in which all that is at work ends
	})
	return s
}

// open asks for events; a request says what it accepts in accept.
func (s *reader) open(accept, query string, header ...string) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), "GET", "http://server"+api.ListEvents.Path+query, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer
}

const (
	ndjson = "application/x-ndjson"
	sse    = "text/event-stream"
)

// lines reads the lines of an answer; the channel is closed at its end.
func lines(answer *http.Response) chan string {
	c := make(chan string, 10000)
	go func() {
		defer close(c)
		defer answer.Body.Close()
		for l := bufio.NewScanner(answer.Body); l.Scan(); {
			c <- l.Text()
		}
	}()
	return c
}

// drain returns the kinds of the events that have come, "~" for a sign of life
// and "end" for the end, once nothing moves any more.
func drain(c chan string) string {
	synctest.Wait()
	var all []string
	for {
		select {
		case line, ok := <-c:
			_, kind, _ := strings.Cut(line, `"kind":"`)
			kind, _, found := strings.Cut(kind, `"`)
			switch {
			case !ok:
				return strings.Join(append(all, "end"), " ")
			case found:
				all = append(all, kind)
			case strings.HasPrefix(line, ":"):
				all = append(all, "~")
			}
		default:
			return strings.Join(all, " ")
		}
	}
}

func expect(t *testing.T, what string, c chan string, want string) {
	t.Helper()
	if got := drain(c); got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestWhereStreamsBegin(t *testing.T) {
	servertest.EachBubble(t, func(t *testing.T, f *servertest.Fleet) {
		s := newReader(t, f)
		before := lines(s.open(sse, ""))
		start := f.Clock.Now()
		record(t, f, api.Event{NodeID: "node_1"}, "a", "b")
		time.Sleep(time.Second)
		expect(t, "begun when there was none", before, "a b")
		f.Clock.Move(time.Minute)
		record(t, f, api.Event{NodeID: "node_2"}, "c", "d")
		all, err := f.Events.List(t.Context(), api.ListEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		second, minute := all.Items[1].ID, start.Add(time.Minute).Format(time.RFC3339)
		cases := map[string]struct {
			accept, query, last string
			begin, goOn         string
		}{
			"now":                       {sse, "", "", "", "e f"},
			"now, NDJSON":               {ndjson, "?follow=true", "", "", "e f"},
			"all of it":                 {ndjson, "", "", "a b c d end", "end"},
			"a few":                     {ndjson, "?limit=3", "", "a b c end", "end"},
			"since":                     {sse, "?since=" + minute, "", "c d", "e f"},
			"since, NDJSON":             {ndjson, "?follow=true&since=" + minute, "", "c d", "e f"},
			"since, and no more":        {ndjson, "?since=" + minute, "", "c d end", "end"},
			"after":                     {sse, "?after=" + second, "", "c d", "e f"},
			"after, NDJSON":             {ndjson, "?follow=true&after=" + second, "", "c d", "e f"},
			"a page at a time":          {sse, "?limit=1&after=" + second, "", "c d", "e f"},
			"after the last one read":   {sse, "", second, "c d", "e f"},
			"read wins over asked":      {sse, "?after=" + all.Items[2].ID, second, "c d", "e f"},
			"after what nobody has":     {sse, "", "42", "", "e f"},
			"after what was never ours": {sse, "", "zzz", "", "e f"},
			"of a node":                 {sse, "?node=node_1&since=" + start.Format(time.RFC3339), "", "a b", ""},
		}
		streams := map[string]chan string{}
		for name, c := range cases {
			streams[name] = lines(s.open(c.accept, c.query, "Last-Event-ID", c.last))
			expect(t, name, streams[name], c.begin)
		}
		record(t, f, api.Event{}, "e", "f")
		time.Sleep(time.Second)
		for name, c := range cases {
			expect(t, name+", gone on", streams[name], c.goOn)
		}
	})
}

func TestStreamsGoOnAndEnd(t *testing.T) {
	servertest.EachBubble(t, func(t *testing.T, f *servertest.Fleet) {
		s := newReader(t, f)
		var open []chan string
		for _, accept := range []string{sse, ndjson} {
			answer := s.open(accept, "?follow=true")
			if got := answer.Header; answer.StatusCode != 200 || got.Get("Content-Type") != accept || got.Get("X-Accel-Buffering") != "no" {
				t.Errorf("%d, %v", answer.StatusCode, got)
			}
			open = append(open, lines(answer))
		}
		for turn := range 3 {
			time.Sleep(time.Minute)
			record(t, f, api.Event{}, fmt.Sprintf("turn_%d", turn))
			time.Sleep(time.Second)
			for _, c := range open {
				if got := strings.TrimLeft(drain(c), "~ "); got != fmt.Sprintf("turn_%d", turn) {
					t.Errorf("turn %d: %q", turn, got)
				}
			}
		}
		close(s.stop)
		time.Sleep(time.Second)
		for _, c := range open {
			expect(t, "a server that stops", c, "end")
		}
	})
}

// A quiet stream shows that it lives, at least every 15 s, and no oftener than
// it must.
func TestSignsOfLife(t *testing.T) {
	servertest.EachBubble(t, func(t *testing.T, f *servertest.Fleet) {
		s := newReader(t, f)
		c := lines(s.open(sse, ""))
		time.Sleep(time.Minute)
		if n := strings.Count(drain(c), "~"); n != 4 {
			t.Errorf("%d signs of life in a minute", n)
		}
		blank := lines(s.open(ndjson, "?follow=true"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(blank); n != 4 {
			t.Errorf("%d signs of life in a minute", n)
		}
	})
}

func TestNewestIsNoStream(t *testing.T) {
	servertest.EachBubble(t, func(t *testing.T, f *servertest.Fleet) {
		s := newReader(t, f)
		record(t, f, api.Event{}, "a", "b")
		for _, accept := range []string{sse, ndjson} {
			answer := s.open(accept, "?newest=true")
			text, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			if err != nil || answer.StatusCode != 400 || !strings.Contains(string(text), "newest goes with JSON only") {
				t.Errorf("%s: %d %s, %v", accept, answer.StatusCode, text, err)
			}
		}
		expect(t, "as JSON", lines(s.open("application/json", "?newest=true&limit=1")), "b end")
	})
}

// Who does not read is cut, and holds nobody up.
func TestSlowReader(t *testing.T) {
	servertest.EachBubble(t, func(t *testing.T, f *servertest.Fleet) {
		s := newReader(t, f)
		slow := s.open(sse, "")
		quick := lines(s.open(sse, ""))
		words := strings.Repeat("x", 4000)
		for range 300 { // more than the network holds
			record(t, f, api.Event{Message: words}, "many")
		}
		time.Sleep(2 * time.Second)
		if n := strings.Count(drain(quick), "many"); n != 300 {
			t.Errorf("who reads got %d events", n)
		}
		time.Sleep(10 * time.Second)
		if n, err := io.Copy(io.Discard, slow.Body); err == nil || n >= 300*4000 {
			t.Errorf("who does not read got %d bytes, %v", n, err)
		}
		slow.Body.Close()
	})
}
