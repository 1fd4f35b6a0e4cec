package contract

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// verdicts takes what a Contract would fail a test with.
type verdicts struct {
	testing.TB
	mu   sync.Mutex
	said []string
}

func (v *verdicts) Errorf(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.said = append(v.said, fmt.Sprintf(format, args...))
}

const (
	json    = "application/json"
	problem = "application/problem+json"
	created = `{"id": "jtk_1", "node_id": "node_1", "node": "web-1", "state": "unused", "created_at": "2026-11-30T09:00:00Z",
		"expires_at": "2026-11-30T10:00:00Z", "token": "bkn_join_x", "ca_sha256": "00", "url": "https://s", "command": "c"}`
	missing = `{"type": "/problems/not_found", "title": "Not Found", "status": 404, "detail": "no", "code": "not_found"}`
	revoked = `{"type": "/problems/node_revoked", "title": "Forbidden", "status": 403, "detail": "no", "code": "node_revoked"}`
)

// exchange is a request, and what the server at the far end says to it.
type exchange struct {
	call, body string // "POST /path"
	status     int
	kind       string
	answer     string
	drop       string // a header that the answer lacks
	objection  string // a word of it; "" for none
}

func TestWhatBreaksTheContract(t *testing.T) {
	contract := New(t)
	for name, x := range map[string]exchange{
		"as documented":             {"POST /api/v1/join-tokens", `{"name": "web-1"}`, 201, json, created, "", ""},
		"a documented refusal":      {"GET /api/v1/nodes/x", "", 404, problem, missing, "", ""},
		"a refused bad request":     {"POST /api/v1/join-tokens", `{"name": 7}`, 404, problem, missing, "", ""},
		"a bad request that passed": {"POST /api/v1/join-tokens", `{"name": 7}`, 201, json, created, "", "request"},
		"an unknown member sent":    {"POST /api/v1/join-tokens", `{"nam": "web-1"}`, 201, json, created, "", "request"},
		"a limit passed":            {"POST /api/v1/join-tokens", `{"expires_in_s": -1}`, 201, json, created, "", "request"},
		"a bad parameter":           {"GET /agent/v1/cursors?wait=600", "", 200, json, `{}`, "", "request"},
		"no such route":             {"GET /api/v1/machines", "", 200, json, `{}`, "", "find the call"},
		"no such method":            {"PUT /api/v1/nodes", `{}`, 200, json, `{}`, "", "find the call"},
		"no such status":            {"GET /api/v1/nodes/x", "", 204, "", "", "", "no such status"},
		"no such code there":        {"GET /api/v1/nodes/x", "", 404, problem, strings.Replace(missing, "not_found", "no_node_matches", 2), "", "body"},
		"a code of another status":  {"POST /agent/v1/heartbeat", `{}`, 403, problem, strings.Replace(revoked, `"node_revoked"`, `"node_unknown"`, 1), "", "body"},
		"an unknown member":         {"POST /api/v1/join-tokens", `{}`, 201, json, strings.Replace(created, `"id"`, `"more": 1, "id"`, 1), "", "more"},
		"an unknown one in a list":  {"GET /api/v1/events", "", 200, json, `{"items": [{"id": "1", "at": "2026-11-30T09:00:00Z", "kind": "k", "more": 1}]}`, "", "more"},
		"an unknown one in a refusal": {
			"GET /api/v1/nodes/x", "", 404, problem, strings.Replace(missing, `"type"`, `"more": 1, "type"`, 1), "", "more",
		},
		"a missing member":       {"POST /api/v1/join-tokens", `{}`, 201, json, strings.Replace(created, `"url": "https://s", `, "", 1), "", "url"},
		"null for unknown":       {"GET /api/v1/events", "", 200, json, `{"items": null}`, "", "items"},
		"a word outside of enum": {"POST /api/v1/join-tokens", `{}`, 201, json, strings.Replace(created, `"unused"`, `"fresh"`, 1), "", "state"},
		"a time that is none":    {"POST /api/v1/join-tokens", `{}`, 201, json, strings.Replace(created, "2026-11-30T09:00:00Z", "today", 1), "", "created_at"},
		"another content type":   {"GET /api/v1/nodes/x", "", 404, json, missing, "", "json"},
		"no content type":        {"GET /api/v1/events", "", 200, "", `{"items": []}`, "", "Content-Type"},
		"no request id":          {"GET /api/v1/events", "", 200, json, `{"items": []}`, "X-Request-Id", "X-Request-Id"},
		"no ETag":                {"GET /agent/v1/cursors", "", 200, json, `{}`, "Etag", "ETag"},
		"not modified":           {"GET /agent/v1/cursors", "", 304, "", "", "", ""},
		"not modified elsewhere": {"GET /agent/v1/commands", "", 304, "", "", "", "no such status"},
		"a state that is empty":  {"POST /agent/v1/commands/c/result", `{"status": "failed"}`, 200, json, `{"state": ""}`, "", ""},
		"a state that is none":   {"POST /agent/v1/commands/c/result", `{"status": "failed"}`, 200, json, `{"state": "done"}`, "", "state"},
		"a stream elsewhere":     {"GET /agent/v1/commands", "", 200, "text/event-stream", "data: {}\n\n", "", "event stream"},
		"a stream":               {"GET /agent/v1/stream", "", 200, "text/event-stream", "data: {}\n\n", "", ""},
		"a stream without id":    {"GET /agent/v1/stream", "", 200, "text/event-stream", "data: {}\n\n", "X-Request-Id", "X-Request-Id"},
	} {
		t.Run(name, func(t *testing.T) {
			v := &verdicts{TB: t}
			if got := x.pass(t, contract.For(v), x.request(t)); got != x.answer {
				t.Errorf("the caller got %q, and not %q", got, x.answer)
			}
			said := strings.Join(v.said, "\n")
			if x.objection == "" && said != "" {
				t.Errorf("it was refused: %s", said)
			}
			if x.objection != "" && (len(v.said) != 1 || !strings.Contains(said, x.objection)) {
				t.Errorf("no word of %q in %q", x.objection, said)
			}
		})
	}
}

func (x exchange) request(t *testing.T) *http.Request {
	method, path, _ := strings.Cut(x.call, " ")
	r, err := http.NewRequestWithContext(t.Context(), method, path, strings.NewReader(x.body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", json)
	return r
}

// pass sends the request through the contract to a server that reads it and
// answers, and returns what came back.
func (x exchange) pass(t *testing.T, c *Contract, r *http.Request) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || x.body != "" && len(body) == 0 {
			t.Errorf("the server got %q, %v", body, err)
		}
		w.Header()["Content-Type"] = nil
		for name, value := range map[string]string{
			"Content-Type": x.kind, "X-Protocol-Min": "1", "X-Protocol-Max": "1", "X-Request-Id": "9e107d9d-372b-4826-8168-5c6f0c1e0a2b", "Etag": `"1"`,
		} {
			if value != "" && name != x.drop {
				w.Header().Set(name, value)
			}
		}
		w.WriteHeader(x.status)
		io.WriteString(w, x.answer)
	}))
	defer s.Close()
	r.URL.Scheme, r.URL.Host = "http", s.Listener.Addr().String()
	res, err := (&http.Client{Transport: c.Wrap(http.DefaultTransport)}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

// A request in gzip cannot be looked into, and is passed on as it is.
func TestCompressedRequest(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	io.WriteString(w, `{"nam": 1}`)
	w.Close()
	x := exchange{"POST /api/v1/join-tokens", packed.String(), 201, json, created, "", ""}
	r := x.request(t)
	r.Header.Set("Content-Encoding", "gzip")
	v := &verdicts{TB: t}
	if x.pass(t, New(v), r); len(v.said) != 0 {
		t.Error(v.said)
	}
}

// A stream is handed on when it begins.
func TestStreamIsNotHeldBack(t *testing.T) {
	ended := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(ended)
	}))
	defer s.Close()
	v := &verdicts{TB: t}
	res, err := (&http.Client{Transport: New(v).Wrap(http.DefaultTransport)}).Get(s.URL + "/agent/v1/stream")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	<-ended
	if len(v.said) != 1 || !strings.Contains(v.said[0], "X-Protocol-M") {
		t.Errorf("said: %q", v.said)
	}
}

// An answer that breaks off is the network's fault, and the caller sees it.
func TestHalfAnAnswer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, `{"items":`)
	}))
	defer s.Close()
	v := &verdicts{TB: t}
	res, err := (&http.Client{Transport: New(v).Wrap(http.DefaultTransport)}).Get(s.URL + "/api/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got, err := io.ReadAll(res.Body); err == nil || string(got) != `{"items":` || len(v.said) != 0 {
		t.Errorf("got %q, %v; said: %q", got, err, v.said)
	}
}
