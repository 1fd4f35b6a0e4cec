package event_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/event"
	"github.com/beckon-fleet/beckon/server/internal/servertest"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// record keeps events of the kinds, about what like says.
func record(t *testing.T, f *servertest.Fleet, like api.Event, kinds ...string) {
	t.Helper()
	for _, like.Kind = range kinds {
		if err := f.Store.Update(t.Context(), func(tx *store.Tx) error { return event.Record(tx, like) }); err != nil {
			t.Fatal(err)
		}
	}
}

func kinds(list []api.Event) (kinds []string) {
	for _, e := range list {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func TestEventsAreListedInOrder(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		start := f.Clock.Now()
		record(t, f, api.Event{NodeID: "node_1", Subject: "cmd_1"}, "a", "b")
		f.Clock.Move(time.Minute)
		record(t, f, api.Event{AppID: "app_1", Message: "words"}, "c", "d", "e")
		all, err := f.Events.List(t.Context(), api.ListEventsRequest{})
		if err != nil || len(all.Items) != 5 {
			t.Fatalf("all: %+v, %v", all, err)
		}
		if e := all.Items[2]; !e.At.Equal(start.Add(time.Minute)) || e.AppID != "app_1" || e.Message != "words" || !strings.HasPrefix(e.ID, "evt_") {
			t.Errorf("the third is %+v", e)
		}
		third := all.Items[2].ID
		for _, c := range []struct {
			req  api.ListEventsRequest
			want []string
			more bool
		}{
			{req: api.ListEventsRequest{}, want: []string{"a", "b", "c", "d", "e"}},
			{req: api.ListEventsRequest{Cursor: api.Cursor{Limit: 2}}, want: []string{"a", "b"}, more: true},
			{req: api.ListEventsRequest{Cursor: api.Cursor{Limit: 2, After: third}}, want: []string{"d", "e"}},
			{req: api.ListEventsRequest{Newest: true, Cursor: api.Cursor{Limit: 3}}, want: []string{"e", "d", "c"}, more: true},
			{req: api.ListEventsRequest{Newest: true, Cursor: api.Cursor{After: third}}, want: []string{"b", "a"}},
			{req: api.ListEventsRequest{Node: "node_1"}, want: []string{"a", "b"}},
			{req: api.ListEventsRequest{App: "app_1"}, want: []string{"c", "d", "e"}},
			{req: api.ListEventsRequest{Subject: "cmd_1"}, want: []string{"a", "b"}},
			{req: api.ListEventsRequest{Node: "node_1", App: "app_1"}},
			{req: api.ListEventsRequest{Since: start.Add(time.Minute)}, want: []string{"c", "d", "e"}},
			{req: api.ListEventsRequest{Since: start.Add(time.Hour)}},
		} {
			page, err := f.Events.List(t.Context(), c.req)
			if err != nil || !slices.Equal(kinds(page.Items), c.want) || (page.Next != "") != c.more || page.Items == nil {
				t.Errorf("%+v: want %v, got %v, next %q, %v", c.req, c.want, kinds(page.Items), page.Next, err)
			}
		}
	})
}

func TestEventsOfANameOutliveIt(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		old := f.Join(t, "web")
		if _, err := f.Nodes.Revoke(t.Context(), api.RevokeNodeRequest{Node: "web"}); err != nil {
			t.Fatal(err)
		}
		page, err := f.Events.List(t.Context(), api.ListEventsRequest{Node: "web"})
		if want := []string{"join_token_created", "node_joined", "node_revoked"}; err != nil || !slices.Equal(kinds(page.Items), want) {
			t.Errorf("want %v, got %v, %v", want, kinds(page.Items), err)
		}
		f.Join(t, "web")
		page, err = f.Events.List(t.Context(), api.ListEventsRequest{Node: old.ID})
		if err != nil || len(page.Items) != 3 {
			t.Errorf("by its id: %v, %v", kinds(page.Items), err)
		}
	})
}

// What undoes a transaction undoes its event.
func TestEventFallsWithItsTransaction(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		fail := errors.New("undone")
		err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
			return errors.Join(event.Record(tx, api.Event{Kind: "never"}), fail)
		})
		if n := f.Count(t, `FROM events`); n != 0 || !errors.Is(err, fail) {
			t.Errorf("%d events, %v", n, err)
		}
	})
}

// open asks for a stream of events and returns its lines.
func open(t *testing.T, url string, header http.Header) *bufio.Scanner {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("status %d", answer.StatusCode)
	}
	return bufio.NewScanner(answer.Body)
}

// streams serves f's events; req is what is asked for.
func streams(t *testing.T, f *servertest.Fleet, do func(http.ResponseWriter, *http.Request, api.ListEventsRequest) error, req *api.ListEventsRequest) string {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := do(w, r, *req); err != nil {
			http.Error(w, err.Error(), api.AsError(err).Code.Status())
		}
	}))
	t.Cleanup(web.Close)
	return web.URL
}

func TestNDJSONIsAnEventALine(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		for range 130 { // more than a page
			record(t, f, api.Event{}, "x")
		}
		var req api.ListEventsRequest
		lines := open(t, streams(t, f, f.Events.NDJSON, &req), nil)
		n, last := 0, ""
		for lines.Scan() {
			var e api.Event
			if lines.Text() == "" {
				continue
			}
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.ID <= last {
				t.Errorf("%q after %s: %v", lines.Text(), last, err)
			}
			n, last = n+1, e.ID
		}
		if n != 130 || lines.Err() != nil {
			t.Errorf("%d lines, %v", n, lines.Err())
		}
	})
}

func TestSSETakesUpWhereItEnded(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		record(t, f, api.Event{}, "old", "known", "missed")
		all, err := f.Events.List(t.Context(), api.ListEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		stopping := make(chan struct{})
		f.Events.Stopping = stopping
		var req api.ListEventsRequest
		url := streams(t, f, f.Events.SSE, &req)
		lines := open(t, url, http.Header{"Last-Event-ID": {all.Items[1].ID}})
		next := func() (kind string) {
			for lines.Scan() {
				if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
					return name
				}
			}
			return ""
		}
		if got := next(); got != "missed" {
			t.Errorf("want missed, got %q", got)
		}
		record(t, f, api.Event{}, "new")
		if got := next(); got != "new" {
			t.Errorf("want new, got %q", got)
		}
		close(stopping)
		if got := next(); got != "" || lines.Err() != nil {
			t.Errorf("a server that stops ends its streams: %q, %v", got, lines.Err())
		}
		open(t, url, http.Header{"Last-Event-Id": {"\xff"}}) // is no fault of ours
	})
}
