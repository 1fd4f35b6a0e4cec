// Package link is the agent's way to its server: one connection where that is
// possible, under the pinned CA, with what every request must say.
package link

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
	"github.com/beckon-fleet/beckon/api/seal"
)

const (
	callTimeout = 30 * time.Second // of a call, beside what it asks the server to wait
	dialTimeout = 10 * time.Second
	openTimeout = 10 * time.Second // until the first byte of a stream
)

// Config is what a link is made of.
type Config struct {
	Server   string // https://host:port
	Version  string
	Instance string // "" before there is one
	Clock    func() time.Time
	Dial     func(ctx context.Context, network, address string) (net.Conn, error) // nil is the network's
}

// Link is a way to the server. The zero time offset is the agent's own clock.
type Link struct {
	cfg Config

	mu        sync.Mutex
	client    *client.Client
	transport *http.Transport
	offset    time.Duration
	used      context.Context // ends when the transport is another one
	unuse     context.CancelFunc
}

// New returns a link that trusts servers under the pins only. certificate is
// nil before a join.
func New(cfg Config, certificate *tls.Certificate, pins ...seal.Pin) *Link {
	l := &Link{cfg: cfg}
	l.Use(certificate, pins...)
	return l
}

// Use has the following calls made with another certificate, on new
// connections: the old ones are the old certificate's.
func (l *Link) Use(certificate *tls.Certificate, pins ...seal.Pin) {
	config := client.PinnedTLS(l.cfg.Clock, pins...)
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	dial := l.cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dial,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    dialTimeout,
		ResponseHeaderTimeout:  callTimeout + api.MaxWait.Duration(),
		IdleConnTimeout:        100 * time.Second, // below the server's, so that no request meets a closing connection
		MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	header := http.Header{}
	header.Set(api.HeaderProtocol, strconv.Itoa(api.Protocol))
	header.Set(api.HeaderAgentVersion, l.cfg.Version)
	header.Set("User-Agent", "beckon-agent/"+l.cfg.Version)
	if l.cfg.Instance != "" {
		header.Set(api.HeaderAgentInstance, l.cfg.Instance)
	}
	l.mu.Lock()
	old, unuse := l.transport, l.unuse
	l.transport, l.client = transport, client.New(l.cfg.Server, transport, header)
	l.used, l.unuse = context.WithCancel(context.Background())
	l.mu.Unlock()
	if old != nil {
		unuse()
		old.CloseIdleConnections()
	}
}

// Close ends the connections.
func (l *Link) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unuse()
	l.transport.CloseIdleConnections()
}

// Call makes one call. wait is what it asks the server to wait. After a
// time-out the connections are dropped: they may be dead without knowing it.
func Call[Req, Res any](ctx context.Context, l *Link, e api.Endpoint[Req, Res], req Req, wait time.Duration) (Res, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+wait)
	defer cancel()
	l.mu.Lock()
	c, transport := l.client, l.transport
	l.mu.Unlock()
	res, err := client.Call(ctx, c, e, req)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		transport.CloseIdleConnections()
	}
	return res, err
}

// Learn takes the server's time from an authenticated answer to a request that
// was sent at sent.
func (l *Link) Learn(server, sent time.Time) {
	now := l.cfg.Clock()
	middle := sent.Add(now.Sub(sent) / 2)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.offset = server.Sub(middle)
}

// Now is the server's time, as well as it is known here. It has no monotonic
// part: suspends and set clocks count.
func (l *Link) Now() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cfg.Clock().Add(l.offset).Round(0)
}

// Pauses after failures.
const (
	fastest = 2 * time.Second
	ceiling = 30 * time.Second
)

// Backoff is the pause after so many failures in a row: it doubles from two
// seconds to thirty, with jitter over all of it, so that a fleet does not come
// back as one.
func Backoff(failures int) time.Duration {
	most := min(fastest<<min(failures-1, 8), ceiling)
	return fastest/2 + rand.N(most)
}

// Pause is what an error asks for. Only our own server can slow an agent down;
// weather and the network are retried for ever. A Retry-After is obeyed up to
// five minutes, with jitter on top.
func Pause(err error, failures int) time.Duration {
	var asked time.Duration
	if problem, ok := errors.AsType[*api.Error](err); ok {
		if problem.Code.Then() == api.ThenSlow {
			return api.SlowPace
		}
		asked = problem.RetryAfter
	}
	if w, ok := errors.AsType[*client.Weather](err); ok {
		asked = w.RetryAfter
	}
	if asked > 0 {
		return min(asked, api.SlowPace) + rand.N(fastest)
	}
	return Backoff(failures)
}

// Listen opens the event stream once and returns when it ends; opened says
// whether it ever was one. It shares the connection of the calls, and ends when
// the certificate is changed: the old connection is to go.
func (l *Link) Listen(ctx context.Context, on func(event string, data []byte)) (opened bool, err error) {
	l.mu.Lock()
	c, transport, used := l.client, l.transport, l.used
	l.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(used, cancel)()
	listener := Listener{
		URL: c.Base + api.Stream.Path, Transport: headed{transport, c.Header},
		Open: openTimeout, Idle: api.Keepalive*2 + api.Keepalive/2,
	}
	return listener.Once(ctx, on)
}

// headed sets the headers that every request has.
type headed struct {
	http.RoundTripper
	header http.Header
}

func (h headed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, values := range h.header {
		r.Header[name] = values
	}
	return h.RoundTripper.RoundTrip(r)
}
