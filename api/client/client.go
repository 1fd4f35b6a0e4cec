// Package client calls the endpoints of package api.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

// ErrNotModified says that the document is still the one whose ETag was sent.
var ErrNotModified = errors.New("not modified")

// Client is a way to one server.
type Client struct {
	Base   string // https://host:port
	HTTP   *http.Client
	Header http.Header // goes with every request
}

// New returns a client that never follows a redirect: our server has none, so
// it is a proxy's.
func New(base string, transport http.RoundTripper, header http.Header) *Client {
	return &Client{Base: base, Header: header, HTTP: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Call sends req to e and returns its answer. The error is an *api.Error when
// our server said no, ErrNotModified, a *Weather, or the network's.
func Call[Req, Res any](ctx context.Context, c *Client, e api.Endpoint[Req, Res], req Req) (res Res, err error) {
	r, err := request(ctx, c, e, req)
	if err != nil {
		return res, err
	}
	answer, err := c.HTTP.Do(r)
	if err != nil {
		return res, err
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusSwitchingProtocols { // its body is the connection, which ctx does not end
		return res, weather(answer, nil)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, api.MaxBody+1))
	if err != nil {
		return res, fmt.Errorf("read answer: %w", err)
	}
	if len(body) > api.MaxBody {
		return res, weather(answer, body)
	}
	return res, read(answer, body, &res)
}

// Upload sends size bytes of body to e, and decodes its answer. The error is as
// of Call. A body that is an io.Closer is closed.
func Upload[Res any](ctx context.Context, c *Client, e api.Raw, header http.Header, body io.Reader, size int64) (res Res, err error) {
	r, err := http.NewRequestWithContext(ctx, e.Method, c.Base+e.Path, body)
	if err != nil {
		return res, err
	}
	r.ContentLength = size
	for _, all := range []http.Header{header, c.Header} {
		for name, values := range all {
			r.Header[name] = values
		}
	}
	r.Header.Set("Content-Type", e.Takes)
	answer, err := c.HTTP.Do(r)
	if err != nil {
		return res, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, api.MaxBody))
	if err != nil {
		return res, fmt.Errorf("read answer: %w", err)
	}
	return res, read(answer, text, &res)
}

func request[Req, Res any](ctx context.Context, c *Client, e api.Endpoint[Req, Res], req Req) (*http.Request, error) {
	target, header := e.Encode(req)
	for name, values := range c.Header {
		header[name] = values
	}
	var body io.Reader
	if e.HasBody() {
		data, err := json.Marshal(req)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
		header.Set("Content-Type", "application/json")
	}
	header.Set("Accept", "application/json")
	r, err := http.NewRequestWithContext(ctx, e.Method, c.Base+target, body)
	if err != nil {
		return nil, err
	}
	r.Header = header
	return r, nil
}

// read tells our own answers from weather. Only our own JSON is a verdict: a
// page with status 200 is not one, nor is half a document.
func read(answer *http.Response, body []byte, res any) error {
	status := answer.StatusCode
	switch {
	case status == http.StatusNotModified && answer.Header.Get(api.HeaderProtocolMax) != "":
		return ErrNotModified
	case status == http.StatusOK, status == http.StatusCreated, status == http.StatusAccepted:
		if contentType(answer) == "application/json" && !isNull(body) && json.Unmarshal(body, res) == nil {
			if t, ok := res.(interface{ KeepETag(string) }); ok {
				t.KeepETag(answer.Header.Get("ETag"))
			}
			return nil
		}
		reflect.ValueOf(res).Elem().SetZero() // half a document is none
		return weather(answer, body)
	}
	return Refusal(answer, body)
}

// isNull finds the one text that decodes into anything and says nothing.
func isNull(body []byte) bool { return string(bytes.TrimSpace(body)) == "null" }

// Refusal says what an answer that is no success means: an *api.Error when our
// server gave it, a *Weather otherwise.
func Refusal(answer *http.Response, body []byte) error {
	problem := new(api.Error)
	if answer.StatusCode >= 400 && contentType(answer) == "application/problem+json" &&
		json.Unmarshal(body, problem) == nil && problem.Code != "" && problem.Status == answer.StatusCode {
		problem.RetryAfter = retryAfter(answer)
		return problem
	}
	return weather(answer, body)
}

func contentType(answer *http.Response) string {
	kind, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return kind
}

// maxRetryAfter keeps a pace from overflowing; who obeys it has a lower bound.
const maxRetryAfter = 24 * time.Hour

// retryAfter reads the header's seconds; a date is no pace of ours.
func retryAfter(answer *http.Response) time.Duration {
	seconds, err := strconv.ParseUint(answer.Header.Get("Retry-After"), 10, 32)
	if err != nil {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}
