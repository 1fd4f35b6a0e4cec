package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/internal/cli"
)

// date is the time by the clock of every server in these tests.
var date = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) *time.Time {
	t := date.Add(-d)
	return &t
}

// far is a server at the far end of the wire: it answers with what a test says,
// and keeps what it was asked.
type far struct {
	*httptest.Server
	mux  *http.ServeMux
	sent []string // "METHOD /path?query body", without the keys of writes
	keys []string // Idempotency-Key of each write
	wait []string // Prefer of each call that had one
}

func newFar(t *testing.T) *far {
	f := &far{mux: http.NewServeMux()}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", date.Format(http.TimeFormat))
		var body bytes.Buffer
		body.ReadFrom(r.Body)
		f.sent = append(f.sent, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+body.String()))
		if key := r.Header.Get("Idempotency-Key"); key != "" {
			f.keys = append(f.keys, key)
		}
		if wait := r.Header.Get("Prefer"); wait != "" {
			f.wait = append(f.wait, wait)
		}
		if r.Header.Get("Authorization") != "Bearer bkn_op_x" {
			problem(w, api.Errorf(api.OperatorTokenInvalid, "the operator token is not known here"))
			return
		}
		f.mux.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

func problem(w http.ResponseWriter, e *api.Error) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(e.Status)
	json.NewEncoder(w).Encode(e)
}

// answers makes f answer e with each of the answers in turn, and with the last
// one for ever. An *api.Error is a refusal, a func a page of another hand.
func answers[Req, Res any](f *far, e api.Endpoint[Req, Res], all ...any) {
	f.mux.HandleFunc(e.Method+" "+e.Path, func(w http.ResponseWriter, r *http.Request) {
		next := all[0]
		if len(all) > 1 {
			all = all[1:]
		}
		switch a := next.(type) {
		case *api.Error:
			problem(w, a)
		case func(http.ResponseWriter, *http.Request):
			a(w, r)
		case Res:
			status := max(e.Status, http.StatusOK)
			if s, ok := next.(interface{ HTTPStatus() int }); ok {
				status = s.HTTPStatus()
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			json.NewEncoder(w).Encode(a)
		}
	})
}

// run runs one command line against f. A word of the line may hold "~" for a
// space.
func (f *far) run(line string) (code int, stdout, stderr string) {
	words := strings.Fields(line)
	for i := range words {
		words[i] = strings.ReplaceAll(words[i], "~", " ")
	}
	return f.beckon("", words...)
}

func (f *far) beckon(stdin string, words ...string) (code int, stdout, stderr string) {
	app := program()
	app.Reader = strings.NewReader(stdin)
	var out, note bytes.Buffer
	args := append([]string{"beckon", "--url", f.URL, "--token", "bkn_op_x"}, words...)
	code = cli.Run(app, args, &out, &note)
	return code, out.String(), note.String()
}

// expect compares all that a run gave.
func expect(t *testing.T, line string, code int, stdout, stderr string, wantCode int, wantOut, wantNote string) {
	t.Helper()
	if code != wantCode || stdout != wantOut || stderr != wantNote {
		t.Errorf("%s: exit %d, want %d\nstdout:\n%s\nwant:\n%s\nstderr:\n%s\nwant:\n%s", line, code, wantCode, stdout, wantOut, stderr, wantNote)
	}
}

func lines(all ...string) string { return strings.Join(all, "\n") + "\n" }
