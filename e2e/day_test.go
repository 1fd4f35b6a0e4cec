package e2e

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/beckon-fleet/beckon/agent"
	"github.com/beckon-fleet/beckon/api"
)

// A node's certificate lives for 24 h. Its agent beats, renews at half life and
// is woken within a second for as long as both programs run.
func TestADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.up()
		cfg, joined := w.join("web-1", agent.Config{})
		if joined.Already || joined.Name != "web-1" {
			t.Fatalf("joined as %+v", joined)
		}
		w.run(cfg)
		time.Sleep(5 * time.Second)
		first := w.node("web-1")
		if first.Presence != api.Online || first.Hello == nil || first.CPUCores == 0 {
			t.Fatalf("after 5 s: %+v", first)
		}

		lost := 0
		for hour := range 25 {
			time.Sleep(time.Hour)
			n := w.node("web-1")
			if n.Presence != api.Online || time.Since(*n.LastSeenAt) > 11*time.Second {
				lost++
				t.Errorf("hour %d: %s, last seen %v ago", hour+1, n.Presence, time.Since(*n.LastSeenAt))
			}
		}
		// Renewed at 45 to 55 % of a day, once or twice by now.
		until := w.node("web-1").CertificateExpiresAt
		if left := time.Until(*until); left < 10*time.Hour+45*time.Minute || !until.After(first.CertificateExpiresAt.Add(10*time.Hour)) {
			t.Errorf("after 25 h the certificate holds for %v, the first one held until %v", left, first.CertificateExpiresAt)
		}

		sent := time.Now()
		c := must(w, api.SendCommand, api.SendCommandRequest{
			Write: api.Write{Wait: 10}, Node: "web-1", Kind: "stop", Payload: []byte(`{"app_id": "app_1", "app": "web"}`),
		})
		if !c.State.Ended() || c.AckedAt == nil || c.AckedAt.Sub(sent) > time.Second {
			t.Errorf("sent at %v, acked at %v, %s", sent, c.AckedAt, c.State)
		}
		if offline := strings.Count(strings.Join(w.events(""), " "), "node_offline"); offline != 0 || lost != 0 {
			t.Errorf("%d times offline, %d heartbeats lost", offline, lost)
		}
	})
}

// A machine that was off comes back by itself while its certificate is not
// older than the grace, and is told what to do when it is.
func TestReturnAfterLongAbsence(t *testing.T) {
	for name, c := range map[string]struct {
		away time.Duration
		back bool
	}{
		"within the grace": {24*time.Hour + 6*24*time.Hour + 23*time.Hour, true},
		"after the grace":  {24*time.Hour + 7*24*time.Hour + time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.up()
				cfg, _ := w.join("web-1", agent.Config{})
				w.run(cfg).stop()
				w.down()
				time.Sleep(c.away)
				w.up()
				p := w.run(cfg)
				time.Sleep(10 * time.Second)
				if online := w.node("web-1").Presence == api.Online; online != c.back {
					t.Errorf("online: %v, want %v", online, c.back)
				}
				p.stop()
				status, err := agent.ReadStatus(cfg)
				if err != nil || c.back == strings.Contains(status.LastFailure, "join again") {
					t.Errorf("it says %q, %v", status.LastFailure, err)
				}
			})
		})
	}
}

// An agent that is told to upgrade slows down to once in five minutes, and is
// back to its pace at the first accepted request.
func TestUpgradeRequired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.up()
		cfg, _ := w.join("web-1", agent.Config{})
		w.run(cfg)
		time.Sleep(time.Minute)
		w.down()
		w.protocol = api.ProtocolRange{Min: 2, Max: 3}
		w.up()
		time.Sleep(time.Hour)
		if seen := w.node("web-1").LastSeenAt; time.Since(*seen) < time.Hour {
			t.Errorf("a refused heartbeat counted: seen %v ago", time.Since(*seen))
		}
		if _, err := operate(w, api.ListNodes, api.ListNodesRequest{}); err != nil {
			t.Errorf("operators are not asked for a protocol: %v", err)
		}
		status, err := agent.ReadStatus(cfg)
		if err != nil || !strings.Contains(status.LastFailure, "upgrade the agent") {
			t.Errorf("the agent says %q, %v", status.LastFailure, err)
		}
		w.down()
		w.protocol = api.ProtocolRange{}
		w.up()
		time.Sleep(api.SlowPace + 15*time.Second)
		first := *w.node("web-1").LastSeenAt
		time.Sleep(10 * time.Second)
		if second := *w.node("web-1").LastSeenAt; second.Sub(first) != 10*time.Second {
			t.Errorf("its pace is %v", second.Sub(first))
		}
	})
}

// A server that has started anew knows no hello, asks for one, and has it with
// the next request; nobody is declared offline for its own absence.
func TestServerRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.up()
		cfg, _ := w.join("web-1", agent.Config{})
		w.run(cfg)
		time.Sleep(time.Minute)
		w.down()
		time.Sleep(10 * time.Minute)
		w.up()
		if p := w.node("web-1").Presence; p != api.PresenceUnknown {
			t.Errorf("just started, it says %s", p)
		}
		time.Sleep(31 * time.Second) // the longest pause of an agent without an answer
		n := w.node("web-1")
		if n.Presence != api.Online || n.Hello == nil {
			t.Errorf("31 s later: %s, hello %v", n.Presence, n.Hello)
		}
		if got := strings.Join(w.events(""), " "); strings.Contains(got, "node_offline") {
			t.Errorf("events: %s", got)
		}
	})
}

// A node that falls silent is offline after three heartbeats by the server's
// clock, and online at the first one after that.
func TestOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.up()
		cfg, _ := w.join("web-1", agent.Config{})
		p := w.run(cfg)
		time.Sleep(time.Minute)
		p.stop()
		time.Sleep(15 * time.Second)
		if n := w.node("web-1"); n.Presence != api.Online {
			t.Errorf("after 15 s of silence: %s", n.Presence)
		}
		time.Sleep(20 * time.Second)
		if n := w.node("web-1"); n.Presence != api.Offline {
			t.Errorf("after 35 s of silence: %s", n.Presence)
		}
		w.run(cfg)
		time.Sleep(5 * time.Second)
		if n := w.node("web-1"); n.Presence != api.Online {
			t.Errorf("back: %s", n.Presence)
		}
		if got := strings.Join(w.events(""), " "); !strings.Contains(got, "node_online node_offline node_online") {
			t.Errorf("events: %s", got)
		}
	})
}

// A revoked node is told so at its next call, waits included, and its agent
// ends with the code that supervisors know; the next start says so unasked.
func TestRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.up()
		cfg, joined := w.join("web-1", agent.Config{})
		p := w.run(cfg)
		time.Sleep(time.Minute)
		start := time.Now()
		must(w, api.RevokeNode, api.RevokeNodeRequest{Node: "web-1"})
		<-p.done
		if err := p.stop(); !errors.Is(err, api.NodeRevoked) || time.Since(start) > time.Second {
			t.Errorf("ended after %v with %v", time.Since(start), err)
		}
		if _, err := agent.New(cfg); !errors.Is(err, api.NodeRevoked) {
			t.Errorf("the next start: %v", err)
		}
		_, again := w.join("web-2", agent.Config{State: cfg.State})
		if again.Already || again.NodeID == joined.NodeID {
			t.Errorf("a fresh token gave %+v", again)
		}
		w.run(cfg)
		time.Sleep(5 * time.Second)
		if n := w.node("web-2"); n.Presence != api.Online {
			t.Errorf("joined again: %s", n.Presence)
		}
	})
}

// A command for a node that is away expires provably undelivered.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.up()
		cfg, _ := w.join("web-1", agent.Config{})
		must(w, api.PutApp, api.PutAppRequest{App: "web", AppSpec: api.AppSpec{Image: "web:1"}, Placement: api.Placement{Node: "web-1"}})
		d := must(w, api.DeployApp, api.ChangeAppRequest{App: "web"}).Items[0]
		if d.State != api.DeploymentWaiting || !strings.Contains(d.Message, "not seen yet") {
			t.Errorf("queued: %s, %q", d.State, d.Message)
		}
		time.Sleep(api.CommandLife + 2*time.Second)
		c := must(w, api.GetCommand, api.CommandRequest{ID: d.CommandID})
		if c.State != api.Expired || !c.NeverRan {
			t.Errorf("command: %s, never ran: %v", c.State, c.NeverRan)
		}
		d = must(w, api.GetDeployment, api.DeploymentRequest{ID: d.ID})
		if d.State != api.DeploymentFailed || !strings.Contains(d.Message, "nothing was changed") {
			t.Errorf("deployment: %s, %q", d.State, d.Message)
		}
		w.run(cfg)
		time.Sleep(time.Minute)
		if got := strings.Join(w.events(c.ID), " "); got != "command_queued command_expired" {
			t.Errorf("events: %s", got)
		}
	})
}
