package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/beckon-fleet/beckon/agent"
	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
	"github.com/beckon-fleet/beckon/e2e/kit/hostile"
)

// way puts a breakable way between the agent of a node and its server.
func (w *world) way(cfg agent.Config) (agent.Config, *hostile.Way) {
	way := hostile.New()
	w.t.Cleanup(way.Close)
	cfg.Wrap = func(next http.RoundTripper) http.RoundTripper { return way.Wrap(w.contract.Wrap(next)) }
	return cfg, way
}

// send queues a command that needs nothing on the node to be acked, and to end.
func (w *world) send(node string) api.SendCommandResponse {
	w.t.Helper()
	return must(w, api.SendCommand, api.SendCommandRequest{
		Node: node, Kind: "stop", Payload: []byte(`{"app_id": "app_1", "app": "web"}`), ExpiresInS: 3600,
	})
}

func (w *world) command(id string) api.CommandStatus {
	w.t.Helper()
	return must(w, api.GetCommand, api.CommandRequest{ID: id})
}

// ackedWithin sends a command and wants it acked in time, and then ended.
func (w *world) ackedWithin(node, when string, most time.Duration) {
	w.t.Helper()
	sent := time.Now()
	c := w.send(node)
	time.Sleep(most)
	c.CommandStatus = w.command(c.ID)
	if c.AckedAt == nil || c.AckedAt.Sub(sent) > most {
		w.t.Errorf("%s: a command is %s, acked at %v, sent at %v", when, c.State, c.AckedAt, sent)
	}
	time.Sleep(time.Second)
	if state := w.command(c.ID).State; !state.Ended() {
		w.t.Errorf("%s: a second later a command is %s", when, state)
	}
}

// livedOnce wants a command to have gone through each step of its life, and
// through each once.
func (w *world) livedOnce(id string) {
	w.t.Helper()
	want := "command_queued command_delivered command_acked command_" + string(w.command(id).State)
	if got := strings.Join(w.events(id), " "); got != want {
		w.t.Errorf("command %s has the events %s, want %s", id, got, want)
	}
}

// rung wants the node on a rung, for a reason that says something.
func (w *world) rung(node, when, rung, reason string) api.Wake {
	w.t.Helper()
	n := w.node(node)
	if n.Wake == nil {
		w.t.Fatalf("%s: the node does not say how it is woken", when)
	}
	if n.Wake.Rung != rung || !strings.Contains(n.Wake.Reason, reason) || reason == "" && n.Wake.Reason != "" || n.Wake.Since == nil {
		w.t.Errorf("%s: it is on rung %s since %v, because %q; want %s, because %q", when, n.Wake.Rung, n.Wake.Since, n.Wake.Reason, rung, reason)
	}
	return *n.Wake
}

// The stream wakes a node at once; without it the same is done a little later.
func TestWake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.up()
		began := time.Now()
		cfg, _ := w.join("web-1", agent.Config{})
		w.run(cfg)
		polls, _ := w.join("web-2", agent.Config{NoStream: true})
		w.run(polls)
		time.Sleep(5 * time.Minute)
		w.rung("web-2", "with polls", "long_poll", "switched off")
		if wake := w.rung("web-1", "with a stream", "stream", ""); wake.Since.Sub(began) > time.Second {
			t.Errorf("the stream is open since %v, and the agent runs since %v", wake.Since, began)
		}
		w.ackedWithin("web-1", "with a stream", 10*time.Millisecond)
		w.ackedWithin("web-2", "with polls", 100*time.Millisecond)
	})
}

// A way that bears no stream costs a second, and is found out again when it
// bears one.
func TestBrokenStreams(t *testing.T) {
	for name, c := range map[string]struct {
		answer hostile.Answer
		reason string
	}{
		"held back":                {hostile.Hold, "no byte of the stream came within 10s"},
		"held back after the head": {hostile.HoldBody, "no byte of the stream came within 10s"},
		"cut before a word":        {hostile.HangUp, "EOF"},
		"cut after the first word": {hostile.CutAfterFirst, "cut within 15s, 3 times in a row"},
		"cut after five seconds":   {hostile.CutAfter(5 * time.Second), "cut within 15s, 3 times in a row"},
		"a page":                   {hostile.Page(200, "text/html", "<h1>Welcome</h1>"), "Welcome"},
		"not there":                {hostile.Page(404, "application/problem+json", `{"code": "not_found", "status": 404, "detail": "nothing here"}`), "nothing here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.up()
				cfg, _ := w.join("web-1", agent.Config{})
				cfg, way := w.way(cfg)
				way.Break(api.Stream, c.answer)
				w.run(cfg)
				time.Sleep(time.Minute)
				began := time.Now()
				w.rung("web-1", "broken", "long_poll", c.reason)
				w.ackedWithin("web-1", "broken", time.Second)
				time.Sleep(8 * time.Minute)
				w.rung("web-1", "still broken", "long_poll", c.reason)
				if n := way.Asked(api.Stream, began); n > 0 {
					t.Errorf("%d streams were tried within ten minutes", n)
				}
				way.Mend()
				time.Sleep(2 * time.Minute)
				w.rung("web-1", "mended", "stream", "")
				w.ackedWithin("web-1", "mended", 10*time.Millisecond)
			})
		})
	}
}

// A stream that is cut now and then is opened again, and stays the rung.
func TestStreamsThatAreCutNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.up()
		cfg, _ := w.join("web-1", agent.Config{})
		cfg, way := w.way(cfg)
		way.Break(api.Stream, hostile.CutAfter(55*time.Second))
		w.run(cfg)
		for range 5 {
			time.Sleep(time.Minute)
			w.ackedWithin("web-1", "cut every minute", 5*time.Second)
		}
		w.rung("web-1", "cut every minute", "stream", "")
		if got := strings.Join(w.events(""), " "); strings.Contains(got, "offline") {
			t.Errorf("events: %s", got)
		}
	})
}

// Where no answer may take long, work comes with the heartbeat.
func TestBrokenPolls(t *testing.T) {
	for name, c := range map[string]struct {
		answer hostile.Answer
		stream bool
	}{
		"cut after five seconds": {hostile.CutAfter(5 * time.Second), false},
		"a page":                 {hostile.Page(200, "text/html", "<h1>Welcome</h1>"), false},
		"never answered, and the stream is a page": {hostile.Silence, true},
		"cut, and the stream is a page":            {hostile.CutAfter(5 * time.Second), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.up()
				cfg, _ := w.join("web-1", agent.Config{})
				cfg.NoStream = !c.stream
				cfg, way := w.way(cfg)
				way.Break(api.GetCursors, c.answer)
				if c.stream {
					way.Break(api.Stream, hostile.Page(200, "text/html", "<h1>Welcome</h1>"))
				}
				w.run(cfg)
				for range 5 {
					time.Sleep(time.Minute)
					w.ackedWithin("web-1", "broken", 11*time.Second)
				}
				time.Sleep(time.Minute) // in which no poll was answered before it was cut
				w.rung("web-1", "broken", "interval", "no long poll: ")
				way.Mend()
				time.Sleep(2 * time.Minute)
				w.rung("web-1", "mended", map[bool]string{true: "stream", false: "long_poll"}[c.stream], map[bool]string{false: "switched off"}[c.stream])
				w.ackedWithin("web-1", "mended", 100*time.Millisecond)
			})
		})
	}
}

// A server that was away is no reason to do without streams.
func TestStreamsComeBackWithTheServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.up()
		cfg, _ := w.join("web-1", agent.Config{})
		w.run(cfg)
		for _, away := range []time.Duration{0, 10 * time.Second, 10 * time.Minute} {
			time.Sleep(time.Minute)
			w.down()
			time.Sleep(away)
			w.up()
			time.Sleep(2 * time.Minute)
			w.rung("web-1", "back after "+away.String(), "stream", "")
			w.ackedWithin("web-1", "back after "+away.String(), 10*time.Millisecond)
		}
	})
}

// Who has to renew first is not kept waiting by what the old certificate was
// refused for.
func TestWakeAfterRenewal(t *testing.T) {
	for name, away := range map[string]time.Duration{"due": 20 * time.Hour, "expired": 3 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.up()
				cfg, _ := w.join("web-1", agent.Config{})
				w.down()
				time.Sleep(away)
				w.up()
				w.run(cfg)
				time.Sleep(15 * time.Second) // room for two failures while connections are exchanged
				w.ackedWithin("web-1", name, 10*time.Millisecond)
				time.Sleep(10 * time.Second)
				w.rung("web-1", name, "stream", "")
			})
		})
	}
}

// Two processes of one identity, as two machines made from one image, replace
// each other's stream about once a minute and not more often, and a command is
// run once.
func TestClonesDoNotStorm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.up()
		cfg, _ := w.join("web-1", agent.Config{})
		clone := cfg
		clone.State = filepath.Join(t.TempDir(), "clone")
		if err := os.CopyFS(clone.State, os.DirFS(cfg.State)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(clone.State, 0o700); err != nil {
			t.Fatal(err)
		}
		cfg, way := w.way(cfg)
		clone.Wrap = cfg.Wrap
		w.run(cfg)
		w.run(clone)
		time.Sleep(time.Minute)
		began := time.Now()
		time.Sleep(6 * time.Minute)
		if n := way.Asked(api.Stream, began); n > 7 {
			t.Errorf("%d streams were opened in six minutes", n)
		}
		if n := way.Asked(api.GetCursors, began); n > 50 {
			t.Errorf("%d polls were made in six minutes", n)
		}
		c := w.send("web-1")
		time.Sleep(30 * time.Second)
		w.livedOnce(c.ID)
	})
}

// A connection that died unnoticed, as after a sleep or a change of networks,
// costs less than a minute.
func TestDeadConnection(t *testing.T) {
	for name, noStream := range map[string]bool{"stream": false, "polls": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.up()
				cfg, _ := w.join("web-1", agent.Config{NoStream: noStream})
				way := &hostile.Darkness{Way: cfg.Dial}
				cfg.Dial = way.Dial
				w.run(cfg)
				for range 2 {
					time.Sleep(2 * time.Minute)
					way.Fall()
					w.ackedWithin("web-1", "in the dark", time.Minute)
				}
				time.Sleep(time.Minute)
				w.ackedWithin("web-1", "afterwards", 100*time.Millisecond)
			})
		})
	}
}

// A thousand commands at once are few events, and none of them is missed.
func TestManyCommandsAreFewEvents(t *testing.T) {
	t.Parallel()
	operators, each := 20, 50
	if raced() {
		each = 10
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.up()
		cfg, _ := w.join("web-1", agent.Config{})
		far := nodeTransport(t, cfg)
		defer far.CloseIdleConnections()
		events, hangUp := readStream(t, far, "https://server")
		defer hangUp()
		near := &http.Transport{DialContext: w.operators.Dial, MaxIdleConnsPerHost: 20}
		defer near.CloseIdleConnections()
		c := client.New("http://server", near, http.Header{"Authorization": {"Bearer " + w.token}})
		synctest.Wait()
		var all sync.WaitGroup
		for range operators {
			all.Go(func() {
				for range each {
					req := api.SendCommandRequest{Node: "web-1", Kind: "stop", Payload: []byte(`{"app_id": "app_1", "app": "web"}`)}
					if _, err := client.Call(t.Context(), c, api.SendCommand, req); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		synctest.Wait()
		n, last := len(events), ""
		for range n {
			last = <-events
		}
		sent := operators * each
		t.Logf("%d events for %d commands", n, sent)
		if n > sent/3 || !strings.Contains(last, fmt.Sprintf(`"commands":%d`, sent)) {
			t.Errorf("%d events for %d commands, the last one %s", n, sent, last)
		}
		if queued := must(w, api.GetStatus, api.StatusRequest{}).Commands[api.Queued]; queued != sent {
			t.Errorf("%d commands are queued", queued)
		}
	})
}
