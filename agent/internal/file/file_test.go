package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/link"
	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
	"github.com/beckon-fleet/beckon/e2e/kit/memnet"
)

// from opens a file at a far end, in a bubble.
func from(t *testing.T, answer http.HandlerFunc, do func(context.Context, *Source)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		var at sync.WaitGroup
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			at.Add(1)
			defer at.Done()
			w.Header().Set(api.HeaderProtocolMax, "1")
			answer(w, r)
		})}
		go s.Serve(n)
		l := link.New(link.Config{Server: "http://server", Version: "1", Clock: time.Now, Dial: n.Dial}, nil)
		do(t.Context(), New(l))
		l.Close()
		s.Close()
		at.Wait()
	})
}

// all reads a file as a caller does who goes on where it broke off.
func all(ctx context.Context, s *Source, size int) (got []byte, tries int, err error) {
	for ; len(got) < size && tries < 100; tries++ {
		r, openErr := s.Open(ctx, "file_1", int64(len(got)))
		if err = openErr; err == nil {
			var more []byte
			more, err = io.ReadAll(r)
			got = append(got, more...)
			r.Close()
		}
		if problem, ok := errors.AsType[*api.Error](err); ok && problem.Next() == api.ThenGiveUp {
			break
		}
	}
	return got, tries, err
}

var content = bytes.Repeat([]byte("0123456789"), 100_000)

const tag = `"sha256:aa"`

// send answers with content from start on, as a server of ours.
func send(w http.ResponseWriter, etag string, start int, body []byte) {
	w.Header().Set("ETag", etag)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	if start > 0 {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, start+len(body)-1, start+len(body)))
		w.WriteHeader(http.StatusPartialContent)
	}
	w.Write(body)
}

// startOfRange is where a request begins.
func startOfRange(r *http.Request) (start int) {
	fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &start)
	return start
}

// cut lets through so many bytes of an answer.
func cut(w http.ResponseWriter, most int, etag string, start int) {
	body := content[start:]
	w.Header().Set("ETag", etag)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	if start > 0 {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, len(content)-1, len(content)))
		w.WriteHeader(http.StatusPartialContent)
	}
	w.Write(body[:min(most, len(body))])
	http.NewResponseController(w).Flush()
	if most < len(body) {
		panic(http.ErrAbortHandler)
	}
}

func TestGoesOnWhereItBrokeOff(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		tries  int
	}{
		"in one": {func(w http.ResponseWriter, r *http.Request) { send(w, tag, 0, content) }, 1},
		"cut every 100 KB": {func(w http.ResponseWriter, r *http.Request) {
			if start := startOfRange(r); start > 0 && r.Header.Get("If-Range") != tag {
				http.Error(w, "no If-Range", http.StatusInternalServerError)
			} else {
				cut(w, 100_000, tag, start)
			}
		}, 10},
		"the whole for a part": {func(w http.ResponseWriter, r *http.Request) { cut(w, 100_000+startOfRange(r), tag, 0) }, 10},
		"a part that begins before": {func(w http.ResponseWriter, r *http.Request) {
			cut(w, 150_000, tag, max(0, startOfRange(r)-50_000))
		}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from(t, c.answer, func(ctx context.Context, s *Source) {
				got, tries, err := all(ctx, s, len(content))
				if !bytes.Equal(got, content) || tries != c.tries {
					t.Errorf("%d bytes in %d tries, %v", len(got), tries, err)
				}
			})
		})
	}
}

// A far end that answers otherwise gives no byte to whoever has some already.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	weather := func(err error) bool { _, ok := errors.AsType[*client.Weather](err); return ok }
	says := func(word string) func(error) bool {
		return func(err error) bool { return err != nil && strings.Contains(err.Error(), word) }
	}
	is := func(c api.Code) func(error) bool { return func(err error) bool { return errors.Is(err, c) } }
	header := func(status int, pairs ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(pairs); i += 2 {
				w.Header().Set(pairs[i], pairs[i+1])
			}
			w.WriteHeader(status)
			io.WriteString(w, "0123456789")
		}
	}
	octets := "application/octet-stream"
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   func(error) bool
	}{
		"a page":                 {header(200, "Content-Type", "text/html"), weather},
		"a redirect":             {header(302, "Location", "/login"), weather},
		"nothing":                {header(204), weather},
		"another's 404":          {header(404, "Content-Type", octets), weather},
		"not ours":               {header(200, "Content-Type", octets, "ETag", tag, api.HeaderProtocolMax, ""), weather},
		"encoded":                {header(200, "Content-Type", octets, "ETag", tag, "Content-Encoding", "gzip"), weather},
		"no ETag":                {header(200, "Content-Type", octets), says("without the ETag")},
		"another's ETag":         {header(200, "Content-Type", octets, "ETag", `"1"`), says("without the ETag")},
		"a later part":           {header(206, "Content-Type", octets, "ETag", tag, "Content-Range", "bytes 6-9/10"), says("from byte 6 on, and not from 5")},
		"a part without a place": {header(206, "Content-Type", octets, "ETag", tag), says("does not say which")},
		"a part of rubbish":      {header(206, "Content-Type", octets, "ETag", tag, "Content-Range", "bytes x-9/10"), says("does not say which")},
		"another file":           {header(200, "Content-Type", octets, "ETag", `"sha256:bb"`), is(api.NotFound)},
		"another file's part":    {header(206, "Content-Type", octets, "ETag", `"sha256:bb"`, "Content-Range", "bytes 5-9/10"), is(api.NotFound)},
		"no such file": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(404)
			io.WriteString(w, `{"code": "not_found", "status": 404, "detail": "no"}`)
		}, is(api.NotFound)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := true
			answer := func(w http.ResponseWriter, r *http.Request) {
				if first {
					send(w, tag, 0, content[:5])
				} else {
					c.answer(w, r)
				}
				first = false
			}
			from(t, answer, func(ctx context.Context, s *Source) {
				if got, _, err := all(ctx, s, 5); len(got) != 5 || err != nil {
					t.Fatalf("%q, %v", got, err)
				}
				r, err := s.Open(ctx, "file_1", 5)
				if err == nil {
					r.Close()
				}
				if !c.want(err) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// What ends too soon, or falls silent, is an error and no end.
func TestBodiesThatBreakOff(t *testing.T) {
	t.Parallel()
	begin := func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", "10")
		w.Header().Set("ETag", tag)
		w.Header().Set("Content-Type", "application/octet-stream")
		io.WriteString(w, "01234")
		http.NewResponseController(w).Flush()
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		after  time.Duration
		got    string
		word   string
	}{
		"short": {func(w http.ResponseWriter, _ *http.Request) { begin(w) }, 0, "01234", "unexpected EOF"},
		"silent": {func(w http.ResponseWriter, r *http.Request) {
			begin(w)
			<-r.Context().Done()
		}, time.Minute, "01234", "silent for 1m0s"},
		"without an answer": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, time.Minute, "", "within 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from(t, c.answer, func(ctx context.Context, s *Source) {
				start := time.Now()
				r, err := s.Open(ctx, "file_1", 0)
				var got []byte
				if err == nil {
					got, err = io.ReadAll(r)
					r.Close()
				}
				if string(got) != c.got || err == nil || !strings.Contains(err.Error(), c.word) || time.Since(start) != c.after {
					t.Errorf("%q after %v: %v", got, time.Since(start), err)
				}
			})
		})
	}
}

// A slow body is alive as long as something comes.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	answer := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		w.Header().Set("ETag", tag)
		w.Header().Set("Content-Type", "application/octet-stream")
		for i := range 10 {
			io.WriteString(w, fmt.Sprint(i))
			http.NewResponseController(w).Flush()
			time.Sleep(59 * time.Second)
		}
	}
	from(t, answer, func(ctx context.Context, s *Source) {
		if got, tries, err := all(ctx, s, 10); string(got) != "0123456789" || tries != 1 || err != nil {
			t.Errorf("%q in %d tries, %v", got, tries, err)
		}
	})
}
