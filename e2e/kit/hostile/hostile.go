// Package hostile stands in an agent's way to its server, as proxies, captive
// portals and broken networks do: some calls get another answer, or the right
// one late, held back or cut.
package hostile

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/e2e/kit/memnet"
)

// Answer answers a request instead of the server, to which next leads.
type Answer func(w http.ResponseWriter, r *http.Request, next http.RoundTripper)

// Way is an agent's way to its server. What is broken on it is answered by a
// real HTTP server in memory, so that it is wrong on the wire.
type Way struct {
	calls     *http.ServeMux // knows the calls of agents by their patterns
	far       *http.Server
	transport *http.Transport
	serving   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	broken map[string]Answer // by pattern
	seen   map[string][]time.Time
	nexts  []http.RoundTripper
}

// New returns a way on which nothing is broken. Close ends it.
func New() *Way {
	n := memnet.New()
	w := &Way{
		calls: http.NewServeMux(), transport: &http.Transport{DialContext: n.Dial},
		broken: map[string]Answer{}, seen: map[string][]time.Time{},
	}
	for _, c := range api.AgentSurface {
		w.calls.Handle(pattern(c), http.NotFoundHandler())
	}
	w.far = &http.Server{Handler: http.HandlerFunc(w.answer)}
	go w.far.Serve(n)
	return w
}

// Close ends the answers that are under way.
func (w *Way) Close() {
	w.far.Close()
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.serving.Wait()
	w.transport.CloseIdleConnections()
}

func pattern(c api.Call) string {
	d := c.Describe()
	return d.Method + " " + d.Path
}

// Break has a call answered otherwise, from now on; nil mends it.
func (w *Way) Break(c api.Call, a Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken[pattern(c)] = a
}

// Mend takes all of it back.
func (w *Way) Mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.broken)
}

// Asked is how often a call was made since a moment.
func (w *Way) Asked(c api.Call, since time.Time) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range w.seen[pattern(c)] {
		if !at.Before(since) {
			n++
		}
	}
	return n
}

// Wrap fits agent.Config.
func (w *Way) Wrap(next http.RoundTripper) http.RoundTripper {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nexts = append(w.nexts, next)
	return traveller{w, next, strconv.Itoa(len(w.nexts) - 1)}
}

// traveller is one transport of an agent's, number which among those of a way.
type traveller struct {
	way   *Way
	next  http.RoundTripper
	which string
}

const whichHeader = "X-Way"

// RoundTrip goes to the server, or to the far end.
func (t traveller) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.way.note(r) == nil {
		return t.next.RoundTrip(r)
	}
	far := r.Clone(r.Context())
	far.URL.Scheme = "http"
	far.Header.Set(whichHeader, t.which)
	return t.way.transport.RoundTrip(far)
}

func (w *Way) note(r *http.Request) Answer {
	_, call := w.calls.Handler(r)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[call] = append(w.seen[call], time.Now())
	return w.broken[call]
}

func (w *Way) answer(out http.ResponseWriter, r *http.Request) {
	a, next := w.begin(r)
	if a == nil {
		panic(http.ErrAbortHandler) // closed or mended meanwhile
	}
	defer w.serving.Done()
	on := r.Clone(r.Context())
	on.RequestURI, on.URL.Scheme, on.URL.Host = "", "https", r.Host
	on.Header.Del(whichHeader)
	a(out, on, next)
}

// begin returns the answer to a request, which is then under way, and the way
// that it came by.
func (w *Way) begin(r *http.Request) (Answer, http.RoundTripper) {
	_, call := w.calls.Handler(r)
	which, err := strconv.Atoi(r.Header.Get(whichHeader))
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.broken[call]
	if a == nil || err != nil || w.closed {
		return nil, nil
	}
	w.serving.Add(1)
	return a, w.nexts[which]
}
