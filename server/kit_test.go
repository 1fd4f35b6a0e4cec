package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/servertest"
)

// control is a running server and the ways to it.
type control struct {
	*Server
	t         *testing.T
	agents    string // https://127.0.0.1:port
	operators string // http://127.0.0.1:port
	token     string
}

// run starts a server on loopback until the test ends.
func run(t *testing.T, cfg Config) *control {
	t.Helper()
	cfg.Data, cfg.Log = t.TempDir(), slog.New(slog.DiscardHandler)
	s, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	token, err := s.FirstToken(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	on := Listeners{Agents: listen(t), Operators: listen(t)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, on) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the server ended with %v", err)
		}
	})
	return &control{s, t, "https://" + on.Agents.Addr().String(), "http://" + on.Operators.Addr().String(), token}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// client speaks HTTP/1.1 or HTTP/2, with certificate or without.
func (c *control) client(http2 bool, certificate *tls.Certificate) *http.Client {
	c.t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(c.authority.CA())
	trusting := &tls.Config{RootCAs: roots, ServerName: api.ServerName, Time: c.cfg.Clock}
	if certificate != nil {
		trusting.Certificates = []tls.Certificate{*certificate}
	}
	transport := &http.Transport{TLSClientConfig: trusting, ForceAttemptHTTP2: http2, DisableCompression: true}
	c.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// join makes a node over the wire, and returns its id and certificate.
func (c *control) join(name string) (id string, certificate *tls.Certificate) {
	c.t.Helper()
	var token api.CreatedJoinToken
	c.operate("POST", "/api/v1/join-tokens", `{"name": "`+name+`"}`).into(c.t, 201, &token)
	if id, certificate = c.joinBy(token.Token); certificate == nil {
		c.t.Fatal("a new token is no good")
	}
	return id, certificate
}

// joinBy joins by a token; one that is no good gives nothing.
func (c *control) joinBy(token string) (id string, certificate *tls.Certificate) {
	c.t.Helper()
	key := servertest.Key(c.t)
	body, err := json.Marshal(api.JoinRequest{Token: token, CSR: servertest.CSR(c.t, key)})
	if err != nil {
		c.t.Fatal(err)
	}
	got := c.send(c.client(true, nil), "POST", c.agents+"/agent/v1/join", string(body), nil)
	if got.StatusCode == http.StatusUnauthorized {
		return "", nil
	}
	var joined api.JoinResponse
	got.into(c.t, 201, &joined)
	block, _ := pem.Decode([]byte(joined.Certificate))
	return joined.NodeID, &tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key}
}

// reply is an answer that was read to its end.
type reply struct {
	*http.Response
	body []byte
}

// operate calls the operator surface.
func (c *control) operate(method, target, body string) reply {
	c.t.Helper()
	return c.send(http.DefaultClient, method, c.operators+target, body, http.Header{"Authorization": {"Bearer " + c.token}})
}

// send calls and holds the answer to what every answer has.
func (c *control) send(by *http.Client, method, url, body string, header http.Header) reply {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	answer, err := by.Do(r)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, url, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, url, err)
	}
	got := reply{answer, text}
	c.frames(got)
	return got
}

// frames fails where an answer lacks what every answer has.
func (c *control) frames(r reply) {
	c.t.Helper()
	h, what := r.Header, r.Request.Method+" "+r.Request.URL.Path
	cached := "no-store, no-transform"
	if r.StatusCode < 400 && strings.HasPrefix(r.Request.URL.Path, "/agent/v1/files/") {
		cached = "private, no-transform"
	}
	if h.Get("Cache-Control") != cached || h.Get("Vary") != "Accept-Encoding" || h.Get("Date") == "" ||
		h.Get(api.HeaderProtocolMin) == "" || h.Get(api.HeaderProtocolMax) == "" || len(h.Get(api.HeaderRequestID)) != 36 {
		c.t.Errorf("%s: %d lacks a header: %v", what, r.StatusCode, h)
	}
	switch kind := h.Get("Content-Type"); {
	case r.StatusCode == http.StatusNotModified:
		if len(r.body) > 0 || h.Get("ETag") == "" {
			c.t.Errorf("%s: a 304 with body %q and ETag %q", what, r.body, h.Get("ETag"))
		}
	case r.StatusCode >= 400:
		p := r.problem(c.t)
		if kind != "application/problem+json" || p.Instance != "urn:uuid:"+h.Get(api.HeaderRequestID) || p.Status != r.StatusCode || p.Code.Meaning() == "" {
			c.t.Errorf("%s: %d is not a problem of ours: %s, %s", what, r.StatusCode, kind, r.body)
		}
	}
}

func (r reply) problem(t *testing.T) (p api.Error) {
	t.Helper()
	if err := json.Unmarshal(r.body, &p); err != nil {
		t.Errorf("%d, %v: %s", r.StatusCode, err, r.body)
	}
	return p
}

// into decodes an answer that must have a status.
func (r reply) into(t *testing.T, status int, v any) {
	t.Helper()
	if r.StatusCode != status {
		t.Fatalf("%s: want %d, got %d: %s", r.Request.URL.Path, status, r.StatusCode, r.body)
	}
	if err := json.Unmarshal(r.body, v); err != nil {
		t.Fatal(err)
	}
}

// refused fails where an answer is not the verdict code.
func (r reply) refused(t *testing.T, what string, code api.Code) {
	t.Helper()
	if p := r.problem(t); r.StatusCode != code.Status() || p.Code != code {
		t.Errorf("%s: want %s, got %d: %s", what, code, r.StatusCode, r.body)
	}
}
