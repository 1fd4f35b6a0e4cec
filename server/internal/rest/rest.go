// Package rest is all that stands between net/http and a service method.
package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/once"
	"github.com/go-chi/chi/v5"
)

// ReadTimeout is how long one request's body may take as a whole; of an upload,
// each part of it. A wait between body and answer has no limit but its own.
const ReadTimeout = 30 * time.Second

// writeTimeout is how long one answer may take.
const writeTimeout = 30 * time.Second

// Router takes the calls of one surface.
type Router struct {
	chi.Router
	strict bool
	keeper *once.Keeper // nil where keys mean nothing
	scope  func(*http.Request) string
}

// Once has calls that carry an Idempotency-Key answered once; scope says who
// calls.
func (r *Router) Once(k *once.Keeper, scope func(*http.Request) string) { r.keeper, r.scope = k, scope }

// NewRouter returns a router whose own refusals are problems like all others:
// chi's are text, and clients take text for weather. A strict one refuses
// members and query parameters that a call does not know, by name.
func NewRouter(strict bool, middleware ...func(http.Handler) http.Handler) *Router {
	r := chi.NewRouter()
	r.Use(middleware...)
	r.NotFound(func(w http.ResponseWriter, r *http.Request) {
		Fail(w, r, api.Errorf(api.NotFound, "there is nothing at %s", r.URL.Path))
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Allow", allowed(r, cmp.Or(q.URL.RawPath, q.URL.Path)))
		Fail(w, q, api.Errorf(api.MethodNotAllowed, "%s takes no %s", q.URL.Path, q.Method))
	})
	return &Router{Router: r, strict: strict}
}

// allowed lists the methods that a path takes.
func allowed(r chi.Routes, path string) string {
	methods := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete}
	return strings.Join(slices.DeleteFunc(methods, func(method string) bool {
		return !r.Match(chi.NewRouteContext(), method, path)
	}), ", ")
}

// Group is the same router, with more middleware in front of what do binds.
func (r *Router) Group(do func(*Router), middleware ...func(http.Handler) http.Handler) {
	r.Router.Group(func(inner chi.Router) {
		inner.Use(middleware...)
		do(&Router{inner, r.strict, r.keeper, r.scope})
	})
}

// Bind answers e with do. A parameter that cannot travel panics here.
func Bind[Req, Res any](r *Router, e api.Endpoint[Req, Res], do func(context.Context, Req) (Res, error), options ...Option[Req, Res]) {
	e.CheckParams()
	b := binding[Req, Res]{router: r, endpoint: e, do: do, known: e.QueryParams()}
	for _, o := range options {
		o(&b)
	}
	r.MethodFunc(e.Method, e.Path, b.serve)
}

// Option is what a call does beyond asking and answering in JSON.
type Option[Req, Res any] func(*binding[Req, Res])

// As answers callers who accept contentType with do, which writes its answer
// itself, or returns an error before it has begun to.
func As[Req, Res any](contentType string, do func(http.ResponseWriter, *http.Request, Req) error) Option[Req, Res] {
	return func(b *binding[Req, Res]) { b.as = append(b.as, form[Req]{contentType, do}) }
}

// Again answers the repeat of a call whose answer held a secret: what is kept
// of the answer does not.
func Again[Req, Res any](do func(ctx context.Context, first Res) (Res, error)) Option[Req, Res] {
	return func(b *binding[Req, Res]) { b.again = do }
}

// binding is one call on one router.
type binding[Req, Res any] struct {
	router   *Router
	endpoint api.Endpoint[Req, Res]
	do       func(context.Context, Req) (Res, error)
	known    []string // query parameters
	as       []form[Req]
	again    func(context.Context, Res) (Res, error)
}

type form[Req any] struct {
	contentType string
	do          func(http.ResponseWriter, *http.Request, Req) error
}

func (b *binding[Req, Res]) serve(w http.ResponseWriter, q *http.Request) {
	var req Req
	body, err := read(w, q, &req, readOptions{body: b.endpoint.HasBody(), strict: b.router.strict, query: b.known})
	if err != nil {
		Fail(w, q, err)
		return
	}
	for _, f := range b.as {
		if strings.Contains(q.Header.Get("Accept"), f.contentType) {
			if err := f.do(w, q, req); err != nil {
				Fail(w, q, err)
			}
			return
		}
	}
	if name := q.Header.Get(api.HeaderIdempotencyKey); name != "" && b.router.keeper != nil && q.Method != http.MethodGet {
		b.serveOnce(w, q, name, req, body)
		return
	}
	res, err := b.do(q.Context(), req)
	if err != nil {
		Fail(w, q, err)
		return
	}
	Answer(w, q, cmp.Or(b.endpoint.Status, http.StatusOK), res)
}

// Raw answers e with do, which writes its answer itself, or returns an error
// before it has begun to.
func Raw(r *Router, e api.Raw, do func(http.ResponseWriter, *http.Request) error) {
	known := e.QueryParams()
	r.MethodFunc(e.Method, e.Path, func(w http.ResponseWriter, q *http.Request) {
		err := checkQuery(q, r.strict, known)
		if err == nil {
			err = do(w, q)
		}
		if err != nil {
			Fail(w, q, err)
		}
	})
}

// Params fills req, the Params of a Raw, from a request.
func Params(q *http.Request, req any) error { return api.Decode(req, param(q)) }

func param(r *http.Request) func(in, name string) (string, error) {
	query := r.URL.Query()
	return func(in, name string) (s string, err error) {
		switch {
		case in == "query":
			s = query.Get(name)
		case in == "header":
			s = r.Header.Get(name)
		case r.URL.RawPath == "":
			s = r.PathValue(name)
		default: // chi has matched the raw path
			s, err = url.PathUnescape(r.PathValue(name))
		}
		if err == nil && !storable(s) {
			err = errors.New("it is not UTF-8, or holds a NUL")
		}
		return s, err
	}
}

// Answer writes res. A document says its own ETag, which is all a long poll
// needs; a command says its own status (202 while it runs, 200 after) and
// where it can be looked at.
func Answer(w http.ResponseWriter, r *http.Request, status int, res any) {
	status = statusOf(status, res)
	describe(w, r, status, res)
	if t, ok := res.(interface{ ETag() string }); ok {
		w.Header().Set("ETag", t.ETag())
		if anyMatches(r.Header.Get("If-None-Match"), t.ETag()) {
			status = http.StatusNotModified
		}
	}
	write(w, status, "application/json", res)
}

func statusOf(status int, res any) int {
	if s, ok := res.(interface{ HTTPStatus() int }); ok {
		return s.HTTPStatus()
	}
	return status
}

func describe(w http.ResponseWriter, r *http.Request, status int, res any) {
	if l, ok := res.(interface{ Location() string }); ok && status != http.StatusOK {
		w.Header().Set("Location", l.Location())
	}
	waited, ok := res.(interface{ Waited() bool })
	if wait := new(api.Wait); ok && waited.Waited() && wait.UnmarshalText([]byte(r.Header.Get("Prefer"))) == nil {
		w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(*wait)))
	}
}

// Fail answers with err and, where the fault is ours, logs its cause.
func Fail(w http.ResponseWriter, r *http.Request, err error) {
	e := *api.AsError(err)
	if id := w.Header().Get(api.HeaderRequestID); id != "" {
		e.Instance = "urn:uuid:" + id
	}
	if e.Code.Status() >= http.StatusInternalServerError {
		slog.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path, "code", e.Code, "err", e.Unwrap())
	}
	switch e.Code.Status() {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", challenge(e.Code))
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInsufficientStorage:
		w.Header().Set("Retry-After", "5")
	case http.StatusUnsupportedMediaType:
		w.Header().Set("Accept-Encoding", "gzip")
	}
	if e.Versions != nil && r.ProtoMajor == 1 { // over HTTP/2 these two are a protocol error
		w.Header().Set("Upgrade", "beckon/"+strconv.Itoa(e.SupportedMax))
		w.Header().Set("Connection", "Upgrade")
	}
	write(w, e.Code.Status(), "application/problem+json", &e)
}

// challenge names the credentials that are missing or wrong.
func challenge(c api.Code) string {
	if c == api.OperatorTokenMissing || c == api.OperatorTokenInvalid {
		return `Bearer realm="beckon"`
	}
	return `Beckon realm="agent", error="` + string(c) + `"`
}

func write(w http.ResponseWriter, status int, kind string, v any) {
	// The caller may have waited; a deadline set earlier would be over.
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		slog.Debug("write deadline not set", "err", err)
	}
	if status == http.StatusNotModified {
		w.WriteHeader(status)
		return
	}
	body, err := json.Marshal(v)
	if err != nil {
		slog.Error("answer not encoded", "err", err)
		status, kind, body = http.StatusInternalServerError, "application/problem+json", []byte(`{"code":"internal","status":500}`)
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	w.Write(append(body, '\n')) // a caller that has gone needs no answer
}
