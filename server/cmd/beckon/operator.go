package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
	"github.com/beckon-fleet/beckon/api/seal"
	"github.com/beckon-fleet/beckon/internal/cli"
	urfave "github.com/urfave/cli/v2"
)

const (
	defaultURL = "http://127.0.0.1:8080"
	envPin     = "BECKON_CA_SHA256"

	// answerLimit is above the longest wait that a server grants.
	answerLimit = time.Duration(api.MaxWait)*time.Second + 15*time.Second
)

func operatorFlags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Name: "url", EnvVars: []string{"BECKON_URL"}, Usage: "ask the server at `URL`", DefaultText: defaultURL},
		&urfave.StringFlag{Name: "token", EnvVars: []string{"BECKON_TOKEN"}, Usage: "the operator `TOKEN`; other users of the machine see what is on a command line"},
	}
}

// operator is what a verb works with: a way to the server, and where to print.
type operator struct {
	*urfave.Context
	client *client.Client
	clock  *serverClock
	out    io.Writer // data
	note   io.Writer // all else; discarded where the caller wants JSON
	json   bool
	said   map[string]string // by progress
}

// verb makes an action of do.
func verb(do func(context.Context, *operator) error) urfave.ActionFunc {
	return func(c *urfave.Context) error {
		op, err := newOperator(c)
		if err != nil {
			return err
		}
		defer op.client.HTTP.CloseIdleConnections()
		return do(c.Context, op)
	}
}

func newOperator(c *urfave.Context) (*operator, error) {
	base, err := baseURL(cmp.Or(c.String("url"), defaultURL))
	if err != nil {
		return nil, err
	}
	token := strings.TrimSpace(c.String("token"))
	if token == "" {
		return nil, api.Errorf(api.OperatorTokenMissing, "there is no operator token")
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, api.Errorf(api.OperatorTokenInvalid, "the operator token holds characters that no token has")
	}
	transport, err := transport(base)
	if err != nil {
		return nil, err
	}
	op := &operator{Context: c, clock: &serverClock{to: transport}, out: c.App.Writer, note: c.App.ErrWriter, json: cli.JSON(c), said: map[string]string{}}
	op.client = client.New(base.String(), op.clock, http.Header{
		"Authorization": {"Bearer " + token},
		"User-Agent":    {c.App.Name + "/" + c.App.Version},
	})
	if op.json {
		op.note = io.Discard
	}
	return op, nil
}

func baseURL(text string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(text, "/"))
	if err == nil && u.User != nil {
		return nil, cli.Usagef("the server's address holds a user; what proves who you are is BECKON_TOKEN")
	}
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" {
		return nil, cli.Usagef("the server's address %q is not one like %s (BECKON_URL or --url)", text, defaultURL)
	}
	return u, nil
}

func transport(base *url.URL) (*http.Transport, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = answerLimit
	text := os.Getenv(envPin)
	if text == "" {
		return t, nil
	}
	if base.Scheme != "https" {
		return nil, cli.Usagef("%s pins a server's certificate, and %s has none; use https://, or unset it", envPin, base)
	}
	pin, err := seal.ParsePin(text)
	if err != nil {
		return nil, cli.Usagef("%s: %s", envPin, api.AsError(err).Detail)
	}
	t.TLSClientConfig = client.PinnedTLS(time.Now, pin)
	return t, nil
}

// serverClock knows the time by the server's clock, so that "3m ago" is right
// on a machine whose own clock is wrong.
type serverClock struct {
	to http.RoundTripper

	mu   sync.Mutex
	date time.Time
}

// RoundTrip keeps the date of the answer.
func (s *serverClock) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.to.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.date = date
	}
	return answer, nil
}

// CloseIdleConnections lets a client close what it kept.
func (s *serverClock) CloseIdleConnections() {
	if c, ok := s.to.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (s *serverClock) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.date.IsZero() {
		return time.Now()
	}
	return s.date
}

// document is an answer as it was read and as it came, so that JSON output
// holds what a newer server says, too.
type document[T any] struct {
	Value T
	raw   json.RawMessage
}

// UnmarshalJSON reads the value and keeps the text.
func (d *document[T]) UnmarshalJSON(text []byte) error {
	d.raw = append(json.RawMessage(nil), text...)
	return json.Unmarshal(text, &d.Value)
}

// MarshalJSON is the text.
func (d document[T]) MarshalJSON() ([]byte, error) { return d.raw, nil }

// call asks the server. What is not its own refusal keeps it from answering.
func call[Req, Res any](ctx context.Context, op *operator, e api.Endpoint[Req, Res], req Req) (document[Res], error) {
	kept := api.Endpoint[Req, document[Res]](e)
	res, err := client.Call(ctx, op.client, kept, req)
	if _, refused := errors.AsType[*api.Error](err); err == nil || refused || ctx.Err() != nil {
		return res, err
	}
	return res, cli.Unreachable(err)
}

// write is what goes with each request that changes something: a key, so that
// a repeat on the way does nothing twice, and how long the server may wait.
func write(wait time.Duration) api.Write {
	return api.Write{Key: rand.Text(), Wait: min(api.Wait(wait.Seconds()), api.MaxWait)}
}

// print writes v as JSON where that is wanted; else people does.
func (op *operator) print(v any, people func() error) error {
	if !op.json {
		return people()
	}
	encoder := json.NewEncoder(op.out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// say writes a sentence that is the result.
func (op *operator) say(format string, args ...any) error {
	_, err := fmt.Fprintln(op.out, cli.Printable(fmt.Sprintf(format, args...)))
	return err
}

// tell writes what is no data. Nobody misses it where it cannot be written.
func (op *operator) tell(format string, args ...any) {
	fmt.Fprintln(op.note, cli.Printable(fmt.Sprintf(format, args...)))
}

// subject is the argument that names what the verb is about.
func (op *operator) subject() (string, error) {
	name := op.Args().First()
	if name == "" || name == "." || name == ".." {
		return "", cli.Usagef("%s: %q is no name and no id", op.Command.FullName(), name)
	}
	return name, nil
}

// keyValues reads what a repeatable flag like "--label k=v" was given.
func (op *operator) keyValues(flag string) (map[string]string, error) {
	given := op.StringSlice(flag)
	if len(given) == 0 {
		return nil, nil
	}
	all := map[string]string{}
	for _, text := range given {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, cli.Usagef("--%s: %q is not like KEY=VALUE", flag, text)
		}
		if _, twice := all[key]; twice {
			return nil, cli.Usagef("--%s: %s is given twice", flag, key)
		}
		all[key] = value
	}
	return all, nil
}

// seconds reads a duration that travels as whole seconds; 0 is not given.
func (op *operator) seconds(flag string) (int, error) {
	d := op.Duration(flag)
	if op.IsSet(flag) && (d < time.Second || d%time.Second != 0) {
		return 0, cli.Usagef("--%s: %s is not a number of whole seconds above 0", flag, d)
	}
	return int(d / time.Second), nil
}
