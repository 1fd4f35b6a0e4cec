// Package link is the agent's way to its server: one connection where that is
// possible, under the pinned CA, with what every request must say.
package link

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"mime"
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
	Wrap     func(http.RoundTripper) http.RoundTripper                            // sees every request and answer; nil for nobody
}

// ErrChanged says that a stream ended because the link has another certificate.
var ErrChanged = errors.New("the certificate was changed")

// Link is a way to the server. The zero time offset is the agent's own clock.
type Link struct {
	cfg Config

	mu        sync.Mutex
	client    *client.Client
	transport *http.Transport
	conns     *conns          // of transport
	retired   *http.Transport // of the certificate before; nil where there was none
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
	conns := &conns{dial: l.cfg.Dial, open: map[*conn]struct{}{}}
	if conns.dial == nil {
		conns.dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            conns.Dial,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    dialTimeout,
		ResponseHeaderTimeout:  callTimeout + api.MaxWait.Duration(),
		IdleConnTimeout:        100 * time.Second, // below the server's, so that no request meets a closing connection
		MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	var way http.RoundTripper = transport
	if l.cfg.Wrap != nil {
		way = l.cfg.Wrap(transport)
	}
	header := http.Header{}
	header.Set(api.HeaderProtocol, strconv.Itoa(api.Protocol))
	header.Set(api.HeaderAgentVersion, l.cfg.Version)
	header.Set("User-Agent", "beckon-agent/"+l.cfg.Version)
	if l.cfg.Instance != "" {
		header.Set(api.HeaderAgentInstance, l.cfg.Instance)
	}
	l.mu.Lock()
	unuse := l.unuse
	l.retired, l.transport, l.conns = l.transport, transport, conns
	l.client = client.New(l.cfg.Server, way, header)
	l.used, l.unuse = context.WithCancel(context.Background())
	l.mu.Unlock()
	if unuse != nil {
		unuse()
	}
}

// Close ends the connections.
func (l *Link) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unuse()
	l.conns.close()
	if l.retired != nil {
		l.retired.CloseIdleConnections()
	}
}

// Call makes one call. wait is what it asks the server to wait. After a
// time-out the connections are dropped: they may be dead without knowing it.
func Call[Req, Res any](ctx context.Context, l *Link, e api.Endpoint[Req, Res], req Req, wait time.Duration) (Res, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+wait)
	defer cancel()
	l.mu.Lock()
	c, transport, retired := l.client, l.transport, l.retired
	l.mu.Unlock()
	if retired != nil {
		retired.CloseIdleConnections() // what was busy when it was retired is not for ever
	}
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

// Ceiling bounds the pauses after failures.
const Ceiling = 30 * time.Second

// fastest bounds the first of them.
const fastest = 2 * time.Second

// Backoff is the pause after so many failures in a row: at least one second,
// and below a bound that doubles from two seconds to thirty, with jitter over
// all of it, so that a fleet does not come back as one.
func Backoff(failures int) time.Duration {
	const least = fastest / 2
	most := min(fastest<<min(failures-1, 8), Ceiling)
	return least + rand.N(most-least)
}

// Pause is what an error asks for. Only our own server can slow an agent down;
// weather and the network are retried for ever. A Retry-After is obeyed up to
// five minutes, with jitter on top.
func Pause(err error, failures int) time.Duration {
	var asked time.Duration
	if problem, ok := errors.AsType[*api.Error](err); ok {
		if problem.Next() == api.ThenSlow {
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
	c, used := l.client, l.used
	l.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(used, cancel)()
	listener := Listener{
		URL: c.Base + api.Stream.Path, Transport: headed{c.HTTP.Transport, c.Header},
		Open: openTimeout, Idle: api.Keepalive*2 + api.Keepalive/2,
	}
	if opened, err = listener.Once(ctx, on); used.Err() != nil {
		err = ErrChanged
	}
	return opened, err
}

// fileIdle is the silence after which a download is dead.
const fileIdle = time.Minute

// Get asks for a document that is no JSON, and returns the answer that our
// server gave, 200 or 206, with its body still to be read; the caller closes
// that. The error is as of Call. A body that is silent for a minute breaks off.
func (l *Link) Get(ctx context.Context, path string, header http.Header) (*http.Response, error) {
	l.mu.Lock()
	c := l.client
	l.mu.Unlock()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Base+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header = header.Clone()
	r.Header.Set("Accept-Encoding", "identity") // a transport that inflates hides what was sent
	w := &watch{RoundTripper: headed{c.HTTP.Transport, c.Header}, open: fileIdle, idle: fileIdle}
	w.heard.Store(true) // every byte is one of the document
	answer, err := (&http.Client{Transport: w, CheckRedirect: c.HTTP.CheckRedirect}).Do(r)
	if err != nil {
		return nil, err
	}
	if !isContent(answer) {
		return nil, refused(answer)
	}
	return answer, nil
}

// isContent tells what our server sends from a page of somebody else.
func isContent(answer *http.Response) bool {
	kind, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	return err == nil && (answer.StatusCode == http.StatusOK || answer.StatusCode == http.StatusPartialContent) &&
		kind == "application/octet-stream" && answer.Header.Get("Content-Encoding") == "" && answer.Header.Get(api.HeaderProtocolMax) != ""
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
