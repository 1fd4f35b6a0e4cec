package nudge

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/beckon-fleet/beckon/api"
	sse "github.com/r3labs/sse/v2"
)

const (
	keepalive    = 15 * time.Second
	writeTimeout = 5 * time.Second
)

// Streams holds the nodes' event streams, at most one for each node
// (PROTOCOL.md section 4).
type Streams struct {
	events *sse.Server

	mu     sync.Mutex
	conns  map[string]*conn // by node
	closed bool
}

// NewStreams wraps r3labs/sse so that its defects are not met: it has one
// stream for each connection, and none is removed while somebody reads it.
func NewStreams() *Streams {
	s := sse.New()
	s.AutoReplay = false // it would keep every event for ever
	s.AutoStream = false // it loses reconnects to a race
	s.BufferSize = 1     // of 1024 pointers by default, for each stream
	s.Headers = map[string]string{"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}
	return &Streams{events: s, conns: map[string]*conn{}}
}

// Serve is a node's stream until it goes, is replaced or r's context ends.
// document returns what the node should have, or nil when that cannot be read
// now. The error is an answer still to be given.
func (s *Streams) Serve(w http.ResponseWriter, r *http.Request, node string, document func() []byte) error {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	c := &conn{events: s.events, stream: rand.Text(), cancel: cancel, document: document, dirty: true}
	if !s.add(node, c) {
		return api.Errorf(api.Unavailable, "the server is shutting down")
	}
	s.events.CreateStream(c.stream)
	defer func() {
		s.remove(node, c)
		s.events.RemoveStream(c.stream) // only now: nobody reads it any more
	}()

	r = r.Clone(ctx)
	r.URL = &url.URL{Path: r.URL.Path, RawQuery: "stream=" + c.stream} // the caller has no say in it
	r.Header.Del("Last-Event-ID")
	out := &writer{w, http.NewResponseController(w), c.push}
	s.events.ServeHTTP(out, r)
	if last, ok := context.Cause(ctx).(farewell); ok {
		fmt.Fprintf(out, "event: %s\ndata: {}\n\n", last)
		out.Flush()
	}
	return nil
}

// Nudge has the node's stream carry its newest document. It never waits for
// the reader.
func (s *Streams) Nudge(node string) {
	if c := s.conn(node); c != nil {
		c.nudge()
	}
}

// Revoke ends the node's stream with an event that says why: a hint, since the
// node believes only the answer to its next call.
func (s *Streams) Revoke(node string) {
	if c := s.conn(node); c != nil {
		c.cancel(farewell(api.StreamRevoked))
	}
}

// Run keeps the streams alive until ctx ends, and then ends them.
func (s *Streams) Run(ctx context.Context) {
	tick := time.NewTicker(keepalive)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.close()
			return
		case <-tick.C:
			for _, c := range s.all() {
				c.keepalive()
			}
		}
	}
}

func (s *Streams) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for _, c := range s.all() {
		c.cancel(nil)
	}
}

// add lets the newest stream win: a half-open old one must not lock out the
// agent that has come back.
func (s *Streams) add(node string, c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if old := s.conns[node]; old != nil {
		old.cancel(farewell(api.StreamReplaced))
	}
	s.conns[node] = c
	return true
}

func (s *Streams) remove(node string, c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[node] == c {
		delete(s.conns, node)
	}
}

func (s *Streams) conn(node string) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[node]
}

func (s *Streams) all() (conns []*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}
