// Package rest is all that stands between net/http and a service method.
package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/go-chi/chi/v5"
)

// Deadlines of one request's body and of one answer, each as a whole; a wait
// between the two has none.
const (
	readTimeout  = 30 * time.Second
	writeTimeout = 30 * time.Second
)

// Router takes the calls of one surface.
type Router struct {
	chi.Router
	strict bool
}

// NewRouter returns a router whose own refusals are problems like all others:
// chi's are text, and clients take text for weather. A strict one refuses
// members and query parameters that a call does not know, by name.
func NewRouter(strict bool, middleware ...func(http.Handler) http.Handler) *Router {
	r := chi.NewRouter()
	r.Use(middleware...)
	r.NotFound(func(w http.ResponseWriter, r *http.Request) {
		Fail(w, r, api.Errorf(api.NotFound, "there is nothing at %s", r.URL.Path))
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		Fail(w, r, api.Errorf(api.MethodNotAllowed, "%s takes no %s", r.URL.Path, r.Method))
	})
	return &Router{r, strict}
}

// Group is the same router, with more middleware in front of what do binds.
func (r *Router) Group(do func(*Router), middleware ...func(http.Handler) http.Handler) {
	r.Router.Group(func(inner chi.Router) {
		inner.Use(middleware...)
		do(&Router{inner, r.strict})
	})
}

// Bind answers e with do. A parameter that cannot travel panics here.
func Bind[Req, Res any](r *Router, e api.Endpoint[Req, Res], do func(context.Context, Req) (Res, error)) {
	e.CheckParams()
	known := e.QueryParams()
	r.MethodFunc(e.Method, e.Path, func(w http.ResponseWriter, q *http.Request) {
		var req Req
		err := read(w, q, &req, readOptions{body: e.HasBody(), strict: r.strict, query: known})
		if err != nil {
			Fail(w, q, err)
			return
		}
		res, err := do(q.Context(), req)
		if err != nil {
			Fail(w, q, err)
			return
		}
		answer(w, q, cmp.Or(e.Status, http.StatusOK), res)
	})
}

// Raw answers e with do, which writes its answer itself, or returns an error
// before it has begun to.
func Raw(r *Router, e api.Raw, do func(http.ResponseWriter, *http.Request) error) {
	r.MethodFunc(e.Method, e.Path, func(w http.ResponseWriter, q *http.Request) {
		if err := do(w, q); err != nil {
			Fail(w, q, err)
		}
	})
}

func param(r *http.Request) func(in, name string) (string, error) {
	query := r.URL.Query()
	return func(in, name string) (string, error) {
		switch in {
		case "path":
			if r.URL.RawPath == "" {
				return r.PathValue(name), nil
			}
			return url.PathUnescape(r.PathValue(name)) // chi has matched the raw path
		case "query":
			return query.Get(name), nil
		}
		return r.Header.Get(name), nil
	}
}

// answer writes res. A document says its own ETag, which is all a long poll
// needs; a command says its own status (202 while it runs, 200 after) and
// where it can be looked at.
func answer(w http.ResponseWriter, r *http.Request, status int, res any) {
	if s, ok := res.(interface{ HTTPStatus() int }); ok {
		status = s.HTTPStatus()
	}
	if l, ok := res.(interface{ Location() string }); ok && status != http.StatusOK {
		w.Header().Set("Location", l.Location())
	}
	if wait := new(api.Wait); wait.UnmarshalText([]byte(r.Header.Get("Prefer"))) == nil && *wait > 0 {
		w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(*wait)))
	}
	if t, ok := res.(interface{ ETag() string }); ok {
		w.Header().Set("ETag", t.ETag())
		if r.Header.Get("If-None-Match") == t.ETag() {
			status = http.StatusNotModified
		}
	}
	write(w, status, "application/json", res)
}

// Fail answers with err and, where the fault is ours, logs its cause.
func Fail(w http.ResponseWriter, r *http.Request, err error) {
	e := *api.AsError(err)
	if r.Context().Err() != nil {
		return // nobody is there any more
	}
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
