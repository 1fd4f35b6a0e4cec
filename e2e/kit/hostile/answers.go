package hostile

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// Weather is an answer that no server of ours gives.
type Weather struct {
	Name   string
	Answer Answer
	Says   []string      // what a log must say of it
	After  time.Duration // its Retry-After
}

// Forecast is all the weather that every call must live through.
var Forecast = []Weather{
	{Name: "page", Answer: Page(200, "text/html", "<html><h1>It works!</h1></html>"), Says: []string{"status 200", "text/html", "It works!"}},
	{
		Name: "login page", Answer: Page(200, "text/html; charset=utf-8", "<!DOCTYPE html>\n<form action=/login>\n  Please sign in"),
		Says: []string{"status 200", "text/html", "<form action=/login> Please sign in"},
	},
	{
		Name: "redirect", Answer: Page(302, "text/html", "moved", "Location", "https://portal.example/login"),
		Says: []string{"status 302", "text/html", "https://portal.example/login"},
	},
	{Name: "half a document", Answer: Page(200, "application/json", `{"status": "ok", "commands": [`), Says: []string{"status 200", "application/json", `commands`}},
	{Name: "no content", Answer: Page(204, "", ""), Says: []string{"status 204", "no content type"}},
	{
		Name: "proxy's password", Answer: Page(407, "text/html", "<title>Proxy Authentication Required</title>", "Proxy-Authenticate", `Basic realm="proxy"`),
		Says: []string{"status 407", "text/html", "Proxy Authentication Required"},
	},
	{Name: "forbidden", Answer: Page(403, "text/html", "<title>Blocked by policy</title>"), Says: []string{"status 403", "text/html", "Blocked by policy"}},
	{Name: "gateway", Answer: Page(502, "text/html", "<h1>502 Bad Gateway</h1>"), Says: []string{"status 502", "text/html", "502 Bad Gateway"}},
	{
		Name: "overloaded", Answer: Page(503, "text/html", "<h1>Try later</h1>", "Retry-After", "120"),
		Says: []string{"status 503", "text/html", "Try later"}, After: 2 * time.Minute,
	},
	{Name: "another type", Answer: Page(200, "text/plain", `{"status": "active", "state": "acked"}`), Says: []string{"status 200", "text/plain", "acked"}},
	{Name: "endless", Answer: endless, Says: []string{"status 200", "application/json", "xxxxxxxxxx"}},
	{Name: "empty", Answer: Page(200, "application/json", ""), Says: []string{"status 200", "application/json"}},
}

// Page is an answer whose headers are pairs of a name and a value.
func Page(status int, kind, body string, header ...string) Answer {
	return func(w http.ResponseWriter, _ *http.Request, _ http.RoundTripper) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		if kind != "" {
			w.Header().Set("Content-Type", kind)
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

func endless(w http.ResponseWriter, r *http.Request, _ http.RoundTripper) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"status": "`)
	for chunk := strings.Repeat("x", 32<<10); r.Context().Err() == nil; {
		if _, err := io.WriteString(w, chunk); err != nil {
			return
		}
	}
}

// HangUp closes the connection instead of answering.
func HangUp(http.ResponseWriter, *http.Request, http.RoundTripper) { panic(http.ErrAbortHandler) }

// Silence never answers.
func Silence(_ http.ResponseWriter, r *http.Request, _ http.RoundTripper) { <-r.Context().Done() }

// Hold lets a request through and never an answer, as who waits for the whole
// of it does with a stream.
func Hold(_ http.ResponseWriter, r *http.Request, next http.RoundTripper) {
	relay(r, next, func(*http.Response) {}, io.Discard)
}

// HoldBody lets the headers of an answer through, and never its body.
func HoldBody(w http.ResponseWriter, r *http.Request, next http.RoundTripper) {
	relay(r, next, func(answer *http.Response) { head(w, answer) }, io.Discard)
}

// CutAfter cuts an answer that takes longer, the wait for its head included.
func CutAfter(long time.Duration) Answer {
	return func(w http.ResponseWriter, r *http.Request, next http.RoundTripper) {
		ctx, cancel := context.WithTimeout(r.Context(), long)
		defer cancel()
		relay(r.WithContext(ctx), next, func(answer *http.Response) { head(w, answer) }, flushing{w})
	}
}

// CutAfterFirst cuts an answer after its first bytes.
func CutAfterFirst(w http.ResponseWriter, r *http.Request, next http.RoundTripper) {
	relay(r, next, func(answer *http.Response) { head(w, answer) }, once{flushing{w}})
}

// head passes the head of an answer on.
func head(w http.ResponseWriter, answer *http.Response) {
	for name, values := range answer.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.StatusCode)
	http.NewResponseController(w).Flush()
}

// relay asks next, has the head of its answer seen and its body written to out.
func relay(r *http.Request, next http.RoundTripper, head func(*http.Response), out io.Writer) {
	answer, err := next.RoundTrip(r)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer answer.Body.Close()
	head(answer)
	if _, err := io.Copy(out, answer.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// flushing has every write go out at once.
type flushing struct{ w http.ResponseWriter }

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err == nil {
		err = http.NewResponseController(f.w).Flush()
	}
	return n, err
}

var errCut = errors.New("cut")

// once takes one write.
type once struct{ flushing }

func (o once) Write(p []byte) (int, error) {
	n, err := o.flushing.Write(p)
	if err == nil {
		err = errCut
	}
	return n, err
}
