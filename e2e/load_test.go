package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
	"github.com/beckon-fleet/beckon/e2e/kit/cluster"
)

// crowd is how many agents work side by side.
const crowd = 50

// Many agents at once cost time, and nothing else: each request is answered
// with what it asked for, and each command ends. It has the machine for itself.
func TestCrowd(t *testing.T) {
	c := fixture(t, programs.Dir(t))
	c.Start("")
	l := &load{t: t, cluster: c, seen: map[string]int{}}
	l.operator = client.New(c.URL, l.watch(&http.Transport{MaxIdleConnsPerHost: crowd}), http.Header{"Authorization": {"Bearer " + c.Token}})
	l.end = time.Now().Add(10 * time.Second)
	if testing.Short() {
		l.end = time.Now().Add(2 * time.Second)
	}
	var all sync.WaitGroup
	for range crowd {
		all.Go(func() {
			if err := l.agent(t.Context()); err != nil {
				l.fail(err)
			}
		})
	}
	all.Wait()
	l.report()
	for state, n := range cluster.Must(c, api.GetStatus, api.StatusRequest{}).Commands {
		if n != 0 {
			t.Errorf("%d commands are left over, %s", n, state)
		}
	}
	for line := range strings.Lines(c.Logs()) {
		for _, bad := range []string{"database is locked", "level=ERROR", "panic", "DATA RACE"} {
			if strings.Contains(line, bad) {
				t.Errorf("in the server's log: %s", line)
			}
		}
	}
}

// load is what a crowd does to a server, and what came back.
type load struct {
	t        *testing.T
	cluster  *cluster.Cluster
	operator *client.Client
	end      time.Time

	mu     sync.Mutex
	seen   map[string]int // answers, by call and status
	failed []error
}

// agent joins, and then does what an agent does until time is up: it beats,
// asks what is new, and carries out what an operator sends. From time to time
// another machine joins.
func (l *load) agent(ctx context.Context) error {
	p, err := l.join(ctx)
	if err != nil {
		return err
	}
	defer p.Close()
	for n := int64(1); time.Now().Before(l.end); n++ {
		beat := api.HeartbeatRequest{CPUCores: 1, MemBytes: 1 << 30, DiskBytes: 1 << 30, N: n, Hello: &api.Hello{Hostname: "crowd"}}
		if _, err := cluster.Ask(ctx, p, api.Heartbeat, beat); err != nil {
			return fmt.Errorf("heartbeat: %w", err)
		}
		if _, err := cluster.Ask(ctx, p, api.GetCursors, api.CursorsRequest{}); err != nil {
			return fmt.Errorf("cursors: %w", err)
		}
		if err := l.command(ctx, p); err != nil {
			return err
		}
		if n%5 == 0 {
			other, err := l.join(ctx)
			if err != nil {
				return err
			}
			other.Close()
		}
	}
	return nil
}

func (l *load) join(ctx context.Context) (*cluster.Peer, error) {
	token, err := client.Call(ctx, l.operator, api.CreateJoinToken, api.CreateJoinTokenRequest{})
	if err != nil {
		return nil, fmt.Errorf("make join token: %w", err)
	}
	return cluster.JoinPeer(ctx, token, l.watch)
}

// command sends one to the agent, which takes it to its end.
func (l *load) command(ctx context.Context, p *cluster.Peer) error {
	_, err := client.Call(ctx, l.operator, api.SendCommand, api.SendCommandRequest{
		Node: p.ID, Kind: api.Stop.Name(), Payload: json.RawMessage(`{"app_id": "app_1", "app": "web"}`),
	})
	if err != nil {
		return fmt.Errorf("send command: %w", err)
	}
	page, err := cluster.Ask(ctx, p, api.Commands, api.CommandsRequest{})
	if err != nil || len(page.Commands) != 1 {
		return fmt.Errorf("fetched %d commands, want the one: %w", len(page.Commands), errors.Join(err, ctx.Err()))
	}
	var item api.CommandItem
	var c api.Command
	if err := errors.Join(json.Unmarshal(page.Commands[0], &item), json.Unmarshal([]byte(item.Data), &c)); err != nil {
		return fmt.Errorf("read command: %w", err)
	}
	if _, err := cluster.Ask(ctx, p, api.Ack, api.AckRequest{ID: c.ID}); err != nil {
		return fmt.Errorf("ack: %w", err)
	}
	if _, err := cluster.Ask(ctx, p, api.PostResult, api.ResultRequest{ID: c.ID, Result: api.Result{Status: api.OutcomeSucceeded}}); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	return nil
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = append(l.failed, err)
}

// watch counts what comes back on a way to the server.
func (l *load) watch(way http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		answer, err := way.RoundTrip(r)
		l.mu.Lock()
		defer l.mu.Unlock()
		if err == nil {
			l.seen[fmt.Sprintf("%d %s %s", answer.StatusCode, r.Method, call(r.URL.Path))]++
		}
		return answer, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip makes a function a way to a server.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// call is a path without what names one command.
func call(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if strings.HasPrefix(part, "cmd_") {
			parts[i] = "{id}"
		}
	}
	return strings.Join(parts, "/")
}

func (l *load) report() {
	var lines []string
	for what, n := range l.seen {
		lines = append(lines, fmt.Sprintf("%s: %d", what, n))
		if !strings.HasPrefix(what, "2") {
			l.t.Errorf("%d answers were %s", n, what)
		}
	}
	slices.Sort(lines)
	l.t.Logf("what came back:\n%s", strings.Join(lines, "\n"))
	for i, err := range l.failed {
		if i == 5 {
			l.t.Errorf("and %d more", len(l.failed)-i)
			break
		}
		l.t.Error(err)
	}
}

// Whoever hangs up loses nothing of anybody else's: what was confirmed is
// there, whoever shared its transaction.
func TestImpatientCallers(t *testing.T) {
	t.Parallel()
	c := fixture(t, programs.Dir(t))
	c.Start("")
	l := &load{t: t, cluster: c, seen: map[string]int{}, end: time.Now().Add(2 * time.Second)}
	l.operator = client.New(c.URL, l.watch(&http.Transport{MaxIdleConnsPerHost: 16}), http.Header{"Authorization": {"Bearer " + c.Token}})
	var mu sync.Mutex
	kept := map[string]bool{}
	var all sync.WaitGroup
	for caller := range 16 {
		all.Go(func() {
			for n := 0; time.Now().Before(l.end); n++ {
				patience := time.Minute
				if caller%2 == 1 {
					patience = time.Duration(n%8) * time.Millisecond
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				token, err := client.Call(ctx, l.operator, api.CreateJoinToken, api.CreateJoinTokenRequest{})
				cancel()
				mu.Lock()
				if err == nil {
					kept[token.ID] = true
				} else if caller%2 == 0 {
					t.Errorf("a patient caller: %v", err)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	l.report()
	found := tokens(c)
	for id := range kept {
		if !found[id] {
			t.Errorf("token %s was confirmed and is not there", id)
		}
	}
	t.Logf("%d confirmed, %d there", len(kept), len(found))
}
