package event

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/beckon-fleet/beckon/api"
)

const (
	look         = time.Second      // between looks for new events
	keepalive    = 15 * time.Second // of silence at most, so that nothing on the way takes a stream for dead
	writeTimeout = 10 * time.Second // of one write to a reader who does not read
)

// NDJSON writes the events that are there, an object a line, and with follow
// those to come as well.
func (s *Service) NDJSON(w http.ResponseWriter, r *http.Request, req api.ListEventsRequest) error {
	line := func(w io.Writer, e api.Event) error { return json.NewEncoder(w).Encode(e) }
	// Readers of NDJSON skip empty lines.
	return s.follow(w, r, req, form{"application/x-ndjson", req.Follow, line, "\n"})
}

// SSE writes events as a browser's EventSource reads them, and goes on until
// the reader leaves. Last-Event-ID takes up where an earlier stream ended.
func (s *Service) SSE(w http.ResponseWriter, r *http.Request, req api.ListEventsRequest) error {
	// One that is not ours, as of another server, begins now: it has no place in
	// the order.
	if last := r.Header.Get("Last-Event-ID"); strings.HasPrefix(last, "evt_") && utf8.ValidString(last) {
		req.After = last
	}
	block := func(w io.Writer, e api.Event) error {
		data, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("encode event: %w", err)
		}
		_, err = fmt.Fprintf(w, "id: %s\nevent: %s\ndata: %s\n\n", e.ID, e.Kind, data)
		return err
	}
	return s.follow(w, r, req, form{"text/event-stream", true, block, ": keepalive\n\n"})
}

// form is how events are written.
type form struct {
	contentType string
	on          bool // and those to come
	put         func(io.Writer, api.Event) error
	life        string // written in long silences
}

// follow writes events from where the request begins. What goes on begins now,
// unless it is said where.
func (s *Service) follow(w http.ResponseWriter, r *http.Request, req api.ListEventsRequest, f form) error {
	if req.Newest {
		return api.Errorf(api.Invalid, "newest goes with JSON only: a stream is in the order of time")
	}
	if f.on && req.After == "" && req.Since.IsZero() {
		newest, err := s.List(r.Context(), api.ListEventsRequest{Cursor: api.Cursor{Limit: 1}, Newest: true})
		if err != nil {
			return err
		}
		if len(newest.Items) > 0 {
			req.After = newest.Items[0].ID
		}
	}
	page, err := s.List(r.Context(), req)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", f.contentType)
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	out := &steady{w, http.NewResponseController(w), time.Now()}
	if err := s.pump(r.Context(), out, req, page, f); err != nil {
		s.Log.Debug("event stream ended", "err", err) // too late to say so: the reader takes it up again
	}
	return nil
}

// pump asks the database again and again: any server may have written.
func (s *Service) pump(ctx context.Context, out *steady, req api.ListEventsRequest, page api.Page[api.Event], f form) (err error) {
	told := overlap{window: s.Store.Settling(), known: req.After}
	for {
		for _, e := range page.Items {
			if told.before(e) {
				continue
			}
			if err := f.put(out, e); err != nil {
				return err
			}
		}
		if len(page.Items) > 0 {
			req.After = page.Items[len(page.Items)-1].ID
		}
		switch all := page.Next == ""; {
		case !f.on && (all || req.Limit > 0):
			return out.flush()
		case all:
			if err := out.rest(f.life); err != nil {
				return err
			}
			if !s.rest(ctx) {
				return nil
			}
			told.goBack(&req)
		}
		if page, err = s.List(ctx, req); err != nil {
			return err
		}
	}
}

// overlap has the last moments read again where many write at once: an event
// may become visible behind later ones. The zero window needs none of it.
type overlap struct {
	window time.Duration
	known  string // what the reader had before
	newest time.Time
	told   map[string]time.Time
}

// before reports whether e was told already, and notes it.
func (o *overlap) before(e api.Event) bool {
	if o.window == 0 {
		return false
	}
	if _, again := o.told[e.ID]; again || e.ID <= o.known {
		return true
	}
	if o.told == nil {
		o.told = map[string]time.Time{}
	}
	o.told[e.ID] = e.At
	if e.At.After(o.newest) {
		o.newest = e.At
	}
	return false
}

// goBack has the next look begin where something may yet appear.
func (o *overlap) goBack(req *api.ListEventsRequest) {
	if o.window == 0 || len(o.told) == 0 {
		return
	}
	begin := o.newest.Add(-o.window)
	maps.DeleteFunc(o.told, func(_ string, at time.Time) bool { return at.Before(begin) })
	req.After, req.Since = "", begin
}

// rest waits for the next look; false says that it is over.
func (s *Service) rest(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s.Stopping:
		return false
	case <-time.After(look):
		return true
	}
}

// steady gives each write its own deadline, so that a reader who does not read
// holds nothing for long, and a quiet stream lives on.
type steady struct {
	w       http.ResponseWriter
	control *http.ResponseController
	wrote   time.Time
}

func (s *steady) Write(p []byte) (int, error) {
	if err := s.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	s.wrote = time.Now()
	return s.w.Write(p)
}

// rest sends what was written, and a sign of life after long silence.
func (s *steady) rest(life string) error {
	if time.Since(s.wrote) >= keepalive {
		if _, err := io.WriteString(s, life); err != nil {
			return err
		}
	}
	return s.flush()
}

func (s *steady) flush() error {
	if err := s.control.Flush(); err != nil {
		return err
	}
	return s.control.SetWriteDeadline(time.Time{})
}
