package client_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
)

// farEnd is what stands at the far end of the wire: it reads each request and
// then writes what it was told to, byte for byte.
func farEnd(t *testing.T, write func(w io.Writer)) *client.Client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				r, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				io.Copy(io.Discard, r.Body)
				write(conn)
			}()
		}
	}()
	return client.New("http://"+listener.Addr().String(), &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10}, nil)
}

// says is a far end that answers with a status line, headers and a body.
func says(t *testing.T, status string, header string, body string) *client.Client {
	t.Helper()
	return farEnd(t, func(w io.Writer) {
		fmt.Fprintf(w, "HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s", status, header, len(body), body)
	})
}

// ask acks a command, where a wrong yes does the most harm.
func ask(t *testing.T, c *client.Client) (api.AckResponse, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return client.Call(ctx, c, api.Ack, api.AckRequest{ID: "cmd_1"})
}

const (
	page   = "<!DOCTYPE html>\n<html><title>Login\x1b[31m \x07required</title>\x00\n\n\t<body>Pay €5</body></html>"
	html   = "Content-Type: text/html; charset=utf-8\r\n"
	plain  = "Content-Type: application/json\r\n"
	ours   = "Content-Type: application/problem+json\r\n"
	seen   = `beginning with "<!DOCTYPE html> <html><title>Login[31m required</title> <body>Pay €5</body></html>"`
	gone   = `{"type": "/problems/command_expired", "title": "Gone", "status": 410, "detail": "no", "code": "command_expired"}`
	onward = "Location: https://portal.example/login?from=\u009b31m\r\n"
)

// Field case: a page is taken for an answer. Whatever a proxy says is weather:
// never an ack, never a verdict, and its words say where it came from.
func TestWhatAProxySaysIsWeather(t *testing.T) {
	for name, c := range map[string]struct {
		status, header, body string
		want                 client.Weather
		words                []string
	}{
		"page with 200":           {status: "200 OK", header: html, body: page, words: []string{"status 200", "text/html", seen}},
		"page as JSON":            {status: "200 OK", header: plain, body: page, words: []string{"application/json", seen}},
		"JSON as a page":          {status: "200 OK", header: html, body: `{"state": "acked"}`, words: []string{"text/html"}},
		"JSON without a type":     {status: "200 OK", body: `{"state": "acked"}`, words: []string{"no content type"}},
		"JSON of an odd type":     {status: "200 OK", header: "Content-Type: application/json, text/html\r\n", body: `{"state": "acked"}`, words: []string{"application/json, text/html"}},
		"JSON as text":            {status: "200 OK", header: "Content-Type: text/plain\r\n", body: `{"state": "acked"}`, words: []string{"text/plain"}},
		"half JSON":               {status: "200 OK", header: plain, body: `{"state": "ack`, words: []string{`beginning with "{\"state\": \"ack"`}},
		"half JSON, state first":  {status: "200 OK", header: plain, body: `{"state": "acked", `, words: []string{"status 200"}},
		"JSON and more":           {status: "200 OK", header: plain, body: `{"state": "acked"}{"state": "acked"}`},
		"another JSON":            {status: "200 OK", header: plain, body: `["acked"]`},
		"wrong member":            {status: "200 OK", header: plain, body: `{"state": 7}`},
		"null":                    {status: "200 OK", header: plain, body: " null\n"},
		"empty":                   {status: "200 OK", header: plain, body: ""},
		"empty and typeless":      {status: "200 OK", words: []string{"status 200, no content type"}},
		"problem with 200":        {status: "200 OK", header: ours, body: strings.Replace(gone, "410", "200", 1)},
		"no content":              {status: "204 No Content", words: []string{"status 204"}},
		"part":                    {status: "206 Partial Content", header: plain, body: `{"state": "acked"}`},
		"JSON with 203":           {status: "203 Non-Authoritative Information", header: plain, body: `{"state": "acked"}`},
		"redirect":                {status: "302 Found", header: html + onward, body: page, words: []string{"status 302", "a redirect to https://portal.example/login?from=31m"}},
		"redirect to ourselves":   {status: "307 Temporary Redirect", header: "Location: /agent/v1/commands/cmd_1/ack\r\n", words: []string{"status 307"}},
		"redirect to nowhere":     {status: "301 Moved Permanently", header: html, body: page, words: []string{"status 301"}},
		"304 that is not ours":    {status: "304 Not Modified", words: []string{"status 304"}},
		"305":                     {status: "305 Use Proxy", header: "Location: http://proxy.example\r\n"},
		"bad gateway":             {status: "502 Bad Gateway", header: html, body: page, words: []string{"status 502", "text/html", seen, "did a proxy answer?"}},
		"proxy wants a password":  {status: "407 Proxy Authentication Required", header: html + "Proxy-Authenticate: Basic\r\n", body: page, words: []string{"status 407"}},
		"a firewall's 403":        {status: "403 Forbidden", header: html, body: page, words: []string{"status 403"}},
		"unavailable page":        {status: "503 Service Unavailable", header: html + "Retry-After: 120\r\n", body: page, want: client.Weather{RetryAfter: 2 * time.Minute}},
		"unavailable till a date": {status: "503 Service Unavailable", header: html + "Retry-After: Fri, 31 Dec 2027 23:59:59 GMT\r\n", body: page},
		"unavailable for ever":    {status: "503 Service Unavailable", header: html + "Retry-After: 4000000000\r\n", body: page, want: client.Weather{RetryAfter: 24 * time.Hour}},
		"unavailable too long":    {status: "503 Service Unavailable", header: html + "Retry-After: 99999999999999999999\r\n", body: page},
		"unavailable below 0":     {status: "503 Service Unavailable", header: html + "Retry-After: -5\r\n", body: page},
		"JSON without a code":     {status: "410 Gone", header: ours, body: `{"type": "about:blank", "title": "Gone", "status": 410}`, words: []string{"status 410", "problem+json"}},
		"JSON with code 7":        {status: "410 Gone", header: ours, body: `{"status": 410, "code": 7}`},
		"problem of a gateway":    {status: "410 Gone", header: plain, body: gone, words: []string{"application/json"}},
		"problem as a page":       {status: "410 Gone", header: html, body: gone},
		"problem, other status":   {status: "502 Bad Gateway", header: ours, body: gone, words: []string{"status 502"}},
		"problem, no status":      {status: "410 Gone", header: ours, body: strings.Replace(gone, `"status": 410, `, "", 1)},
		"half a problem":          {status: "410 Gone", header: ours, body: gone[:60]},
		"problem below 400":       {status: "304 Not Modified", header: ours},
		"null problem":            {status: "410 Gone", header: ours, body: "null"},
		"odd status":              {status: "599 Oh", header: html, body: page, words: []string{"status 599"}},
		"escapes in the type":     {status: "502 Bad Gateway", header: "Content-Type: text/\u009b2J\u202ehtml\r\n", body: page, words: []string{"text/2Jhtml"}},
		"long type":               {status: "502 Bad Gateway", header: "Content-Type: text/" + strings.Repeat("x", 5000) + "\r\n", body: page},
		"no UTF-8":                {status: "502 Bad Gateway", header: html, body: strings.Repeat("\xff\xfe€", 500), words: []string{"€€€"}},
		"large page":              {status: "502 Bad Gateway", header: html, body: strings.Repeat(page, 1<<14), words: []string{"status 502"}},
		"large JSON":              {status: "200 OK", header: plain, body: `{"state": "acked", "more": "` + strings.Repeat("x", api.MaxBody) + `"}`},
		"large problem":           {status: "410 Gone", header: ours, body: strings.TrimSuffix(gone, "}") + `, "more": "` + strings.Repeat("x", api.MaxBody) + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, err := ask(t, says(t, c.status, c.header, c.body))
			w, ok := errors.AsType[*client.Weather](err)
			if !ok || res != (api.AckResponse{}) {
				t.Fatalf("it was taken for %+v, %v", res, err)
			}
			if _, verdict := errors.AsType[*api.Error](err); verdict || fmt.Sprint(w.Status) != c.status[:3] || w.RetryAfter != c.want.RetryAfter {
				t.Errorf("got %+v", w)
			}
			for _, word := range c.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q is not in: %s", word, err)
				}
			}
			printableOnly(t, err.Error())
		})
	}
}

func printableOnly(t *testing.T, text string) {
	t.Helper()
	if len(text) > 1000 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		t.Errorf("it is long, or would write to a terminal: %q", text)
	}
}

// What breaks on the way is the network's.
func TestBrokenAnswersAreNoVerdict(t *testing.T) {
	for name, write := range map[string]func(w io.Writer){
		"closed at once": func(io.Writer) {},
		"garbage":        func(w io.Writer) { io.WriteString(w, "\x16\x03\x01\x00\x00") },
		"SSH":            func(w io.Writer) { io.WriteString(w, "SSH-2.0-OpenSSH_9.2\r\n") },
		"half a header":  func(w io.Writer) { io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Type: appl") },
		"half a body": func(w io.Writer) {
			io.WriteString(w, "HTTP/1.1 200 OK\r\n"+plain+"Content-Length: 100\r\n\r\n{\"state\": \"acked\"}")
		},
		"half a chunk": func(w io.Writer) {
			io.WriteString(w, "HTTP/1.1 200 OK\r\n"+plain+"Transfer-Encoding: chunked\r\n\r\n12\r\n{\"state\": \"acked\"}\r\n")
		},
		"no gzip": func(w io.Writer) {
			io.WriteString(w, "HTTP/1.1 200 OK\r\n"+plain+"Content-Encoding: gzip\r\nContent-Length: 18\r\n\r\n{\"state\": \"acked\"}")
		},
		"half a problem": func(w io.Writer) {
			fmt.Fprintf(w, "HTTP/1.1 410 Gone\r\n%sContent-Length: %d\r\n\r\n%s", ours, len(gone)+1, gone)
		},
		"two lengths": func(w io.Writer) {
			io.WriteString(w, "HTTP/1.1 200 OK\r\n"+plain+"Content-Length: 18\r\nContent-Length: 2\r\n\r\n{\"state\": \"acked\"}")
		},
		"endless headers": func(w io.Writer) { io.WriteString(w, "HTTP/1.1 200 OK\r\n"); forever(w, "X-A: b\r\n") },
		"endless 103":     func(w io.Writer) { forever(w, "HTTP/1.1 103 Early Hints\r\n\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, err := ask(t, farEnd(t, write))
			if err == nil || res != (api.AckResponse{}) {
				t.Errorf("it was taken for %+v", res)
			}
			if _, verdict := errors.AsType[*api.Error](err); verdict || errors.Is(err, client.ErrNotModified) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func forever(w io.Writer, text string) {
	for text = strings.Repeat(text, 1000); ; {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

func TestEndlessBodyEnds(t *testing.T) {
	for name, header := range map[string]string{"page": html, "JSON": plain, "problem": ours} {
		c := farEnd(t, func(w io.Writer) {
			io.WriteString(w, "HTTP/1.1 200 OK\r\n"+header+"\r\n")
			forever(w, "<p>endless</p>")
		})
		if _, err := ask(t, c); weatherOf(err) == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func weatherOf(err error) *client.Weather {
	w, _ := errors.AsType[*client.Weather](err)
	return w
}

// A far end that says nothing more is left when ctx ends, and one that turns
// the connection into something else is not waited for.
func TestCtxEndsACall(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	for name, text := range map[string]string{
		"silence": "", "after the header": "HTTP/1.1 200 OK\r\n" + plain + "Content-Length: 100\r\n\r\n{", "101": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
	} {
		c := farEnd(t, func(w io.Writer) {
			io.WriteString(w, text)
			<-release
		})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		ended := make(chan error, 1)
		go func() {
			_, err := client.Call(ctx, c, api.Ack, api.AckRequest{ID: "cmd_1"})
			ended <- err
		}()
		select {
		case err := <-ended:
			if err == nil || name == "101" && weatherOf(err) == nil {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: it hangs, though ctx has ended", name)
		}
		cancel()
	}
}

func TestOurOwnAnswers(t *testing.T) {
	t.Run("yes", func(t *testing.T) {
		for _, status := range []string{"200 OK", "201 Created", "202 Accepted"} {
			res, err := ask(t, says(t, status, "Content-Type: application/json; charset=utf-8\r\n", `{"state": "acked", "more": [1]}`))
			if err != nil || res.State != api.Acked {
				t.Errorf("%s: %+v, %v", status, res, err)
			}
		}
	})
	t.Run("no", func(t *testing.T) {
		_, err := ask(t, says(t, "410 Gone", ours, gone))
		if !errors.Is(err, api.CommandExpired) || weatherOf(err) != nil {
			t.Errorf("got %v", err)
		}
	})
	t.Run("later", func(t *testing.T) {
		body := `{"type": "/problems/unavailable", "status": 503, "detail": "busy", "code": "unavailable"}`
		_, err := ask(t, says(t, "503 Service Unavailable", ours+"Retry-After: 7\r\n", body))
		problem, ok := errors.AsType[*api.Error](err)
		if !ok || problem.Code != api.Unavailable || problem.RetryAfter != 7*time.Second || problem.Detail != "busy" {
			t.Errorf("got %+v", err)
		}
	})
	t.Run("of a newer server", func(t *testing.T) {
		_, err := ask(t, says(t, "418 I'm a teapot", ours, `{"status": 418, "code": "of_a_newer_server"}`))
		problem, ok := errors.AsType[*api.Error](err)
		if !ok || problem.Next() != api.ThenRetry {
			t.Errorf("got %+v", err)
		}
	})
	t.Run("not modified", func(t *testing.T) {
		_, err := ask(t, says(t, "304 Not Modified", api.HeaderProtocolMax+": 1\r\n", ""))
		if !errors.Is(err, client.ErrNotModified) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("ETag", func(t *testing.T) {
		c := says(t, "200 OK", plain+"ETag: \"of a newer server\"\r\n", `{"commands": 7, "secrets": 3}`)
		res, err := client.Call(t.Context(), c, api.GetCursors, api.CursorsRequest{})
		if err != nil || *res.Commands != 7 || res.ETag() != `"of a newer server"` {
			t.Errorf("got %+v, %v", res, err)
		}
	})
}

func FuzzDecodeRefusal(f *testing.F) {
	for _, seed := range []string{gone, page, "", "null", `{"code": "invalid"}`, `{"code": "", "status": 410}`, `{"status": 410, "code": "x", "error": 7}`, strings.Repeat("[", 20_000)} {
		for _, kind := range []string{"application/problem+json", "application/problem+json; charset=utf-8", "text/html", "application/json", ";", ""} {
			f.Add(410, kind, "120", []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, status int, kind, retry string, body []byte) {
		answer := &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}, "Retry-After": {retry}, "Location": {kind + retry}}}
		err := client.Refusal(answer, body)
		problem, verdict := errors.AsType[*api.Error](err)
		w := weatherOf(err)
		switch {
		case verdict == (w != nil):
			t.Fatalf("it is both or none: %v", err)
		case verdict && (problem.Code == "" || problem.Status != status || status < 400 || !strings.HasPrefix(strings.ToLower(strings.TrimSpace(kind)), "application/problem+json") || problem.RetryAfter < 0):
			t.Errorf("taken for a verdict: %+v", problem)
		case w != nil:
			printableOnly(t, err.Error())
			if w.Status != status || w.RetryAfter < 0 || w.RetryAfter > 24*time.Hour {
				t.Errorf("got %+v", w)
			}
		}
	})
}
