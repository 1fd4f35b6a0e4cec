package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// logbook keeps what a program logs.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// take returns the warnings and errors since the last take.
func (l *logbook) take() (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		bad := strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR")
		if bad && !strings.Contains(line, "command not verified") { // which a test here brings about
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	l.text.Reset()
	return lines
}

// stormy is an agent whose way to the server is broken for one call, and what
// the test holds against it.
type stormy struct {
	*world
	cfg     agent.Config
	way     *hostile.Way
	log     *logbook
	program *program // nil where the agent does not run
}

// longest is how long an agent that waited for better weather may go on
// waiting after it came.
func longest(bad hostile.Weather) time.Duration { return max(30*time.Second, bad.After+2*time.Second) }

// through has one agent live through all weather on one call, one after the
// other: begin is done before it, during while it lasts, and after once it is
// over and the agent has had the time to notice.
func through(t *testing.T, call api.Call, o agent.Config, hooks func(*stormy) weatherHooks) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.up()
		s := &stormy{world: w, log: &logbook{}}
		s.cfg, _ = w.join("web-1", o)
		s.cfg.Log = slog.New(slog.NewTextHandler(s.log, nil))
		s.cfg, s.way = w.way(s.cfg)
		h := hooks(s)
		if !h.idle {
			s.program = w.run(s.cfg)
			time.Sleep(time.Minute)
		}
		for _, bad := range forecast() {
			s.one(call, bad, h)
		}
	})
}

// forecast is all weather, and with the race detector some of it.
func forecast() (some []hostile.Weather) {
	for i, bad := range hostile.Forecast {
		if !raced() || i%3 == 0 || bad.After > 0 {
			some = append(some, bad)
		}
	}
	return some
}

type weatherHooks struct {
	idle   bool          // no agent runs
	late   time.Duration // what after may take longer than the agent's own pause
	begin  func()
	during func(t *testing.T, bad hostile.Weather)
	after  func() error // nil once all is well again
}

func (s *stormy) one(call api.Call, bad hostile.Weather, h weatherHooks) {
	s.log.take()
	before := s.way.Asked(call, time.Time{})
	s.way.Break(call, bad.Answer)
	if h.begin != nil {
		h.begin()
	}
	if s.program != nil {
		time.Sleep(40 * time.Second)
	}
	h.during(s.t, bad)
	s.said(bad)
	if n := s.way.Asked(call, time.Time{}) - before; n == 0 || bad.After > 0 && n > 1 || n > 20 {
		s.t.Errorf("%s: it was asked %d times in that time", bad.Name, n)
	}
	if s.program != nil {
		select {
		case <-s.program.done:
			s.t.Fatalf("%s: the agent ended with %v", bad.Name, s.program.stop())
		default:
		}
	}
	if status, err := agent.ReadStatus(s.cfg); err != nil || status.Name != "web-1" {
		s.t.Errorf("%s: the agent is %+v, %v", bad.Name, status, err)
	}
	s.way.Mend()
	if h.after == nil {
		return
	}
	mended := time.Now()
	for err := h.after(); err != nil; err = h.after() {
		if time.Since(mended) > longest(bad)+h.late {
			s.t.Fatalf("%s: %v later %v", bad.Name, time.Since(mended), err)
		}
		time.Sleep(2 * time.Second)
	}
}

// said wants the weather in the log: in one message that names it, and in few.
func (s *stormy) said(bad hostile.Weather) {
	s.t.Helper()
	lines := s.log.take()
	named := false
	for _, line := range lines {
		all := true
		for _, words := range bad.Says {
			all = all && strings.Contains(line, words)
		}
		named = named || all
	}
	if !named || len(lines) > 4 {
		s.t.Errorf("%s: want one message with %q, got %d:\n%s", bad.Name, bad.Says, len(lines), strings.Join(lines, "\n"))
	}
}

// No weather is a join: nothing is believed, and the token stays good.
func TestHostileJoin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.up()
		way, log := hostile.New(), &logbook{}
		t.Cleanup(way.Close)
		for _, bad := range forecast() {
			token := must(w, api.CreateJoinToken, api.CreateJoinTokenRequest{AllowMachineReuse: true})
			cfg := agent.Config{
				State: filepath.Join(t.TempDir(), "state"), Dial: w.dialAgents, Wrap: way.Wrap, Log: slog.New(slog.NewTextHandler(log, nil)),
			}
			o := agent.JoinOptions{URL: token.URL, Token: token.Token, Pin: token.CASHA256}
			s := &stormy{world: w, log: log}
			way.Break(api.Join, bad.Answer)
			before := way.Asked(api.Join, time.Time{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			joined, err := agent.Join(ctx, cfg, o)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || joined.NodeID != "" {
				t.Errorf("%s: joined as %+v, %v", bad.Name, joined, err)
			}
			if _, err := agent.ReadStatus(cfg); !errors.Is(err, agent.ErrNotJoined) {
				t.Errorf("%s: the folder says %v", bad.Name, err)
			}
			if n := way.Asked(api.Join, time.Time{}) - before; n < 1 || bad.After > 0 && n > 1 || n > 15 {
				t.Errorf("%s: it was asked %d times", bad.Name, n)
			}
			s.saidOnce(bad)
			way.Mend()
			if joined, err = agent.Join(t.Context(), cfg, o); err != nil || joined.NodeID != token.NodeID {
				t.Errorf("%s: mended, joined as %+v, %v", bad.Name, joined, err)
			}
		}
	})
}

// saidOnce is said for who tells of each failure, to a person who watches.
func (s *stormy) saidOnce(bad hostile.Weather) {
	s.t.Helper()
	lines := s.log.take()
	for _, words := range bad.Says {
		if len(lines) == 0 || !strings.Contains(lines[0], words) {
			s.t.Errorf("%s: want %q in the first of %q", bad.Name, words, lines)
		}
	}
}

// No weather is a heartbeat: the node counts as silent.
func TestHostileHeartbeat(t *testing.T) {
	through(t, api.Heartbeat, agent.Config{}, func(s *stormy) weatherHooks {
		return weatherHooks{
			during: func(t *testing.T, bad hostile.Weather) {
				if n := s.node("web-1"); n.Presence != api.Offline {
					t.Errorf("%s: the node is %s", bad.Name, n.Presence)
				}
			},
			after: func() error {
				if n := s.node("web-1"); n.Presence != api.Online {
					return fmt.Errorf("the node is %s", n.Presence)
				}
				return nil
			},
		}
	})
}

// No weather is news of cursors: work comes with the heartbeat.
func TestHostileCursors(t *testing.T) {
	through(t, api.GetCursors, agent.Config{NoStream: true}, func(s *stormy) weatherHooks {
		return weatherHooks{
			late:  time.Minute, // a poll that waited, and a heartbeat
			begin: func() { time.Sleep(40 * time.Second) },
			during: func(t *testing.T, bad hostile.Weather) {
				s.rung("web-1", bad.Name, "interval", "no long poll: not an answer of the control plane")
				s.ackedWithin("web-1", bad.Name, 11*time.Second)
			},
			after: func() error {
				if wake := s.node("web-1").Wake; wake.Rung != "long_poll" || !strings.Contains(wake.Reason, "switched off") {
					return fmt.Errorf("it is on rung %s, because %q", wake.Rung, wake.Reason)
				}
				return nil
			},
		}
	})
}

// No weather is a stream: polls take its place.
func TestHostileStream(t *testing.T) {
	through(t, api.Stream, agent.Config{}, func(s *stormy) weatherHooks {
		return weatherHooks{
			begin: func() { // a stream that is open would stay so
				s.program.stop()
				s.program = s.run(s.cfg)
			},
			during: func(t *testing.T, bad hostile.Weather) {
				s.rung("web-1", bad.Name, "long_poll", "no stream: not an answer of the control plane")
				s.ackedWithin("web-1", bad.Name, 100*time.Millisecond)
			},
		}
	})
}

// commandStays wants a command to stay in a state while the weather lasts, and
// to end after it, each step once.
func commandStays(t *testing.T, call api.Call, state api.State) {
	through(t, call, agent.Config{}, func(s *stormy) weatherHooks {
		var c api.SendCommandResponse
		return weatherHooks{
			begin: func() { c = s.send("web-1") },
			during: func(t *testing.T, bad hostile.Weather) {
				if now := s.command(c.ID); now.State != state || now.Result != nil {
					t.Errorf("%s: the command is %s, result %v; want %s", bad.Name, now.State, now.Result, state)
				}
			},
			after: func() error {
				if state := s.command(c.ID).State; !state.Ended() {
					return fmt.Errorf("the command is %s", state)
				}
				s.livedOnce(c.ID)
				return nil
			},
		}
	})
}

// No weather is a command, or the word that there is none.
func TestHostileCommands(t *testing.T) { commandStays(t, api.Commands, api.Queued) }

// No weather is an ack: nothing runs.
func TestHostileAck(t *testing.T) { commandStays(t, api.Ack, api.Delivered) }

// No weather confirms a result: it is sent again.
func TestHostileResult(t *testing.T) { commandStays(t, api.PostResult, api.Acked) }

// No weather takes a report: what was noticed is told later.
func TestHostileReport(t *testing.T) {
	through(t, api.PostReport, agent.Config{}, func(s *stormy) weatherHooks {
		told := func() int { return strings.Count(strings.Join(s.events(""), " "), "command_not_verified") }
		before := 0
		return weatherHooks{
			begin: func() {
				before = told()
				forged := `{"commands": [{"data": "{}", "seq": 1, "signature": "AAAA", "key": "nobody", "state": "queued"}], "more": false, "cursor": 0}`
				s.way.Break(api.Commands, hostile.Page(200, "application/json", forged))
				s.send("web-1")
				time.Sleep(time.Second)
				s.way.Break(api.Commands, nil)
			},
			during: func(t *testing.T, bad hostile.Weather) {
				if n := told(); n != before {
					t.Errorf("%s: %d events were told", bad.Name, n-before)
				}
			},
			after: func() error {
				if told() == before {
					return errors.New("no event was told")
				}
				return nil
			},
		}
	})
}

// No weather is a leave: the node stays who it is.
func TestHostileLeave(t *testing.T) {
	through(t, api.Leave, agent.Config{}, func(s *stormy) weatherHooks {
		return weatherHooks{
			idle: true,
			during: func(t *testing.T, bad hostile.Weather) {
				_, err := agent.Leave(t.Context(), s.cfg, false)
				if _, ok := errors.AsType[*client.Weather](err); !ok {
					t.Errorf("%s: left with %v", bad.Name, err)
				}
				if n := s.node("web-1"); n.Status != api.StatusActive {
					t.Errorf("%s: the node is %s", bad.Name, n.Status)
				}
				s.cfg.Log.Warn("left", "err", err) // as the command line says it
			},
		}
	})
}

// No weather is a certificate: the old one serves until there is a new one.
func TestHostileRenew(t *testing.T) {
	through(t, api.Renew, agent.Config{}, func(s *stormy) weatherHooks {
		var until time.Time
		return weatherHooks{
			begin: func() {
				s.program.stop()
				s.down()
				time.Sleep(14 * time.Hour) // past the half of the certificate's life
				s.up()
				s.program = s.run(s.cfg)
				until = *s.node("web-1").CertificateExpiresAt
			},
			during: func(t *testing.T, bad hostile.Weather) {
				n := s.node("web-1")
				if n.Presence != api.Online || !n.CertificateExpiresAt.Equal(until) {
					t.Errorf("%s: it is %s, its certificate ends at %v, not at %v", bad.Name, n.Presence, n.CertificateExpiresAt, until)
				}
			},
			late: 10 * time.Second, // renewals come with heartbeats
			after: func() error {
				if n := s.node("web-1"); !n.CertificateExpiresAt.After(until) {
					return fmt.Errorf("its certificate ends at %v still", until)
				}
				return nil
			},
		}
	})
}
