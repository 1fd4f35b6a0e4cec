package node_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/servertest"
)

// window is the silence after which a node is offline.
var window = api.OfflineAfter(api.HeartbeatPace)

func get(t *testing.T, f *servertest.Fleet, id string) api.Node {
	t.Helper()
	n, err := f.Nodes.Get(t.Context(), api.NodeRequest{Node: id})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// settle does what the server does from time to time.
func settle(t *testing.T, f *servertest.Fleet) {
	t.Helper()
	if err := errors.Join(f.Nodes.Flush(t.Context()), f.Nodes.Sweep(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func TestHeartbeatMembersThatDoNotFit(t *testing.T) {
	f := servertest.New(t, servertest.SQLite(t))
	a := f.Join(t, "web")
	const capacity = `"cpu_cores": 8, "mem_bytes": 1, "disk_bytes": 1`
	for body, want := range map[string][]string{
		`{` + capacity + `, "hello": {"tier": "two", "kernel": 7, "os": "linux"}}`:          {"hello.kernel", "hello.tier"},
		`{` + capacity + `, "hello": {"tier": 9, "runtimes": {"docker": {"deep": [[1]]}}}}`: {"hello.runtimes", "hello.tier"},
		`{` + capacity + `, "hello": "hi", "self": [], "wake": 7, "n": "one"}`:              {"hello", "n", "self", "wake"},
		`{` + capacity + `, "self": {"rss_bytes": 1e400}, "n": 1e99}`:                       {"n", "self"},
		`{` + capacity + `, "of_a_newer_agent": {"x": 1}, "hello": {"new": true}}`:          nil,
		`{` + capacity + `, "hello": null}`:                                                 nil,
	} {
		var req api.HeartbeatRequest
		if err := json.Unmarshal([]byte(body), &req); err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		res, err := f.Nodes.Heartbeat(a.Context(t.Context()), req)
		if err != nil || len(res.Warnings) != len(want) {
			t.Errorf("%s: want warnings of %v, got %q, %v", body, want, res.Warnings, err)
			continue
		}
		for i, name := range want {
			if !strings.HasPrefix(res.Warnings[i], name+" ") {
				t.Errorf("%s: want a warning of %s, got %q", body, name, res.Warnings[i])
			}
		}
	}
	if n := get(t, f, a.ID); n.Hello == nil || n.CPUCores != 8 {
		t.Errorf("what fitted was dropped: %+v", n)
	}
}

func TestHeartbeatWithoutCapacity(t *testing.T) {
	for _, body := range []string{
		`{}`, `null`, `{"cpu_cores": 0, "mem_bytes": 1, "disk_bytes": 1}`, `{"cpu_cores": 8, "mem_bytes": -1, "disk_bytes": 1}`,
		`{"cpu_cores": 8, "mem_bytes": 1}`,
	} {
		var req api.HeartbeatRequest
		if err := json.Unmarshal([]byte(body), &req); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		wantCode(t, body, req.Validate(), api.Invalid)
	}
	for _, body := range []string{`{"cpu_cores": "8"}`, `{"cpu_cores": 8.5}`, `{"mem_bytes": 1e400}`, `{"disk_bytes": []}`, `[]`, `7`, `"x"`} {
		if json.Unmarshal([]byte(body), new(api.HeartbeatRequest)) == nil {
			t.Errorf("%s was taken", body)
		}
	}
}

func TestLateHeartbeatChangesNothing(t *testing.T) {
	f := servertest.New(t, servertest.SQLite(t))
	a := f.Join(t, "web")
	a.Beat(t, api.HeartbeatRequest{N: 7, Wake: &api.Wake{Rung: "long_poll"}, Hello: &api.Hello{Kernel: "new"}})
	f.Clock.Move(time.Second)
	a.Beat(t, api.HeartbeatRequest{N: 6, Wake: &api.Wake{Rung: "interval"}, Hello: &api.Hello{Kernel: "old"}})
	n := get(t, f, a.ID)
	if n.Wake.Rung != "long_poll" || n.Hello.Kernel != "new" {
		t.Errorf("an older heartbeat was believed: %+v %+v", n.Wake, n.Hello)
	}
	if !n.LastSeenAt.Equal(f.Clock.Now()) {
		t.Errorf("but it shows that the node is there: %v", n.LastSeenAt)
	}
	later := a.As("e1", 2, "r2") // counts from 1 again
	later.Beat(t, api.HeartbeatRequest{N: 1, Wake: &api.Wake{Rung: "interval"}})
	if n := get(t, f, a.ID); n.Wake.Rung != "interval" {
		t.Errorf("a new instance's first heartbeat was ignored: %+v", n.Wake)
	}
}

func TestHelloIsWantedOncePerInstance(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		hello := api.HeartbeatRequest{Hello: &api.Hello{OS: "linux"}}
		wanted := func(what string, a *servertest.Agent, req api.HeartbeatRequest, want bool) {
			t.Helper()
			if got := a.Beat(t, req).HelloWanted; got != want {
				t.Errorf("%s: hello wanted %v", what, got)
			}
		}
		wanted("the first", a, api.HeartbeatRequest{}, true)
		wanted("with a hello", a, hello, false)
		wanted("the next", a, api.HeartbeatRequest{}, false)
		restarted := a.As("e1", 2, "r2")
		wanted("of a new instance", restarted, api.HeartbeatRequest{}, true)
		if n := get(t, f, a.ID); n.Hello != nil {
			t.Errorf("the old instance's hello is shown: %+v", n.Hello)
		}
		wanted("of the new instance with one", restarted, hello, false)
		wanted("after a restart of the server", restarted.On(f.Restarted()), api.HeartbeatRequest{}, true)
	})
}

func TestHeartbeatAnswer(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a, other := f.Join(t, "web"), f.Join(t, "other")
		before := a.Beat(t, api.HeartbeatRequest{})
		if before.NextS != 10 || !before.ServerTime.Equal(f.Clock.Now()) || *before.Cursors.Trust != f.Authority.Generation() ||
			len(before.ResultsWanted) != 0 || len(before.Warnings) != 0 {
			t.Errorf("the first answer: %+v", before)
		}
		first, second, queued := a.Stop(t), a.Stop(t), a.Stop(t)
		other.Stop(t)
		a.Fetch(t)
		for _, id := range []string{second.ID, first.ID} {
			if err := a.Ack(t, id); err != nil {
				t.Fatal(err)
			}
		}
		after := a.Beat(t, api.HeartbeatRequest{})
		if *after.Cursors.Commands == *before.Cursors.Commands {
			t.Error("the cursor did not move")
		}
		if !slices.Equal(after.ResultsWanted, []string{first.ID, second.ID}) {
			t.Errorf("results wanted %v", after.ResultsWanted)
		}
		if _, err := a.Result(t, first.ID, api.Result{Status: api.OutcomeSucceeded}); err != nil {
			t.Fatal(err)
		}
		if got := a.Beat(t, api.HeartbeatRequest{}).ResultsWanted; !slices.Equal(got, []string{second.ID}) {
			t.Errorf("after a result: %v, and %s is only queued", got, queued.ID)
		}
	})
}

func TestEpochChangeLosesWhatWasAcked(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		a.Beat(t, api.HeartbeatRequest{})
		acked, ended, queued := a.Stop(t), a.Stop(t), a.Stop(t)
		a.Run(t, ended.ID, api.Result{Status: api.OutcomeSucceeded})
		if err := a.Ack(t, acked.ID); err != nil {
			t.Fatal(err)
		}
		a.As("e1", 2, "r2").Beat(t, api.HeartbeatRequest{}) // a restart is no loss
		if s := f.State(t, acked.ID); s.State != api.Acked {
			t.Fatalf("after a restart of the agent: %s", s.State)
		}
		fresh := a.As("e2", 1, "r3")
		for range 2 {
			fresh.Beat(t, api.HeartbeatRequest{})
		}
		if s := f.State(t, acked.ID); s.State != api.Lost || s.Reason != "journal_lost" || s.NeverRan {
			t.Errorf("acked: %+v", s)
		}
		if a, b := f.State(t, ended.ID), f.State(t, queued.ID); a.State != api.Succeeded || b.State != api.Delivered {
			t.Errorf("the others: %s, %s", a.State, b.State)
		}
		if got := f.EventsOf(t, acked.ID); !slices.Equal(got, []string{"command_queued", "command_delivered", "command_acked", "command_lost"}) {
			t.Errorf("events %v", got)
		}
		if err := fresh.Ack(t, queued.ID); err != nil {
			t.Errorf("the new journal acks what is left: %v", err)
		}
	})
}

// An agent may ack before its first heartbeat on a new journal.
func TestAckBeforeTheFirstHeartbeatIsKept(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		c := a.Stop(t)
		a.Fetch(t)
		if err := a.Ack(t, c.ID); err != nil {
			t.Fatal(err)
		}
		a.Beat(t, api.HeartbeatRequest{})
		if s := f.State(t, c.ID); s.State != api.Acked {
			t.Errorf("it is %s", s.State)
		}
	})
}

func TestPresence(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		is := func(when string, want api.Presence) {
			t.Helper()
			settle(t, f)
			if got := get(t, f, a.ID).Presence; got != want {
				t.Errorf("%s: want %s, got %s", when, want, got)
			}
		}
		is("never seen", api.PresenceUnknown)
		f.Clock.Move(window)
		is("never seen for long", api.PresenceUnknown)
		a.Beat(t, api.HeartbeatRequest{})
		is("after a heartbeat", api.Online)
		f.Clock.Move(window - time.Millisecond)
		is("just within the window", api.Online)
		f.Clock.Move(time.Millisecond)
		is("at its end", api.Offline)
		f.Clock.Move(time.Millisecond)
		is("after it", api.Offline)
		a.Beat(t, api.HeartbeatRequest{})
		is("back", api.Online)
		if _, err := f.Nodes.Revoke(t.Context(), api.RevokeNodeRequest{Node: a.ID}); err != nil {
			t.Fatal(err)
		}
		is("revoked", api.PresenceUnknown)
		var presence []string
		for _, kind := range f.EventsOf(t, a.ID) {
			if strings.HasPrefix(kind, "node_o") {
				presence = append(presence, kind)
			}
		}
		if want := []string{"node_online", "node_offline", "node_online"}; !slices.Equal(presence, want) {
			t.Errorf("want %v, got %v", want, presence)
		}
	})
}

// A server that was away heard nobody: that is no proof of silence.
func TestJustStartedServerDeclaresNobodyOffline(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		alive, gone, offline := f.Join(t, "alive"), f.Join(t, "gone"), f.Join(t, "offline")
		offline.Beat(t, api.HeartbeatRequest{})
		settle(t, f)
		for range 2 {
			f.Clock.Move(window)
			settle(t, f)
		}
		alive.Beat(t, api.HeartbeatRequest{})
		gone.Beat(t, api.HeartbeatRequest{})
		settle(t, f)
		f.Clock.Move(time.Minute)

		f = f.Restarted()
		settle(t, f)
		for a, want := range map[*servertest.Agent]api.Presence{alive: api.PresenceUnknown, gone: api.PresenceUnknown, offline: api.Offline} {
			if got := get(t, f, a.ID).Presence; got != want {
				t.Errorf("%s: want %s, got %s", a.Name, want, got)
			}
		}
		alive.On(f).Beat(t, api.HeartbeatRequest{})
		f.Clock.Move(window)
		alive.On(f).Beat(t, api.HeartbeatRequest{})
		settle(t, f)
		for a, want := range map[*servertest.Agent]api.Presence{alive: api.Online, gone: api.Offline, offline: api.Offline} {
			if got := get(t, f, a.ID).Presence; got != want {
				t.Errorf("after the window, %s: want %s, got %s", a.Name, want, got)
			}
		}
		if n := f.Count(t, `FROM events WHERE kind = 'node_offline' AND node_id = $1`, alive.ID); n != 0 {
			t.Errorf("who stayed was said to be offline %d times", n)
		}
	})
}

// A clock that was set leaves times behind which prove nothing: neither life,
// where they lie in the future, nor silence, where they are long ago.
func TestClockThatIsSet(t *testing.T) {
	for name, by := range map[string]time.Duration{"back": -24 * time.Hour, "forward": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
				alive, gone := f.Join(t, "alive"), f.Join(t, "gone")
				for range 3 { // the server runs for longer than a window
					f.Clock.Move(window)
					settle(t, f)
				}
				for _, a := range []*servertest.Agent{alive, gone} {
					a.Beat(t, api.HeartbeatRequest{})
				}
				settle(t, f)
				f.Clock.Move(by)
				settle(t, f)
				if got := get(t, f, gone.ID).Presence; got != api.PresenceUnknown {
					t.Errorf("right after: want unknown, got %s", got)
				}
				for range 4 {
					f.Clock.Move(api.HeartbeatPace)
					alive.Beat(t, api.HeartbeatRequest{})
					settle(t, f)
				}
				if a, b := get(t, f, alive.ID).Presence, get(t, f, gone.ID).Presence; a != api.Online || b != api.Offline {
					t.Errorf("who beats is %s, who does not is %s", a, b)
				}
				if n := f.Count(t, `FROM nodes WHERE online`); n != 1 {
					t.Errorf("%d are kept as online", n)
				}
				if n := f.Count(t, `FROM events WHERE kind = 'node_offline'`); n != 1 {
					t.Errorf("%d were said to be offline", n)
				}
			})
		})
	}
}

func TestFlushWritesOnce(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		a.Beat(t, api.HeartbeatRequest{})
		if n := f.Count(t, `FROM nodes WHERE seen_at > 0`); n != 0 {
			t.Error("a heartbeat wrote")
		}
		settle(t, f)
		stored := func() int {
			return f.Count(t, `FROM nodes WHERE id = $1 AND seen_at = $2 AND cpu_cores = 8 AND mem_bytes > 0 AND disk_bytes > 0 AND agent_version = '1.2.3' AND online`,
				a.ID, f.Clock.Now().UnixMilli())
		}
		if stored() != 1 {
			t.Error("the flush did not")
		}
		f.Do(t, `UPDATE nodes SET cpu_cores = 9`)
		settle(t, f)
		if stored() != 0 {
			t.Error("an unchanged heartbeat was written again")
		}
		a.Beat(t, api.HeartbeatRequest{})
		settle(t, f)
		if stored() != 1 {
			t.Error("the next one was not written")
		}
		if n := f.Count(t, `FROM events WHERE kind = 'node_online'`); n != 1 {
			t.Errorf("it came online %d times", n)
		}
	})
}

// A heartbeat that comes as its node is revoked brings it not back.
func TestFlushOfARevokedNode(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "web")
		if _, err := f.Nodes.Revoke(t.Context(), api.RevokeNodeRequest{Node: a.ID}); err != nil {
			t.Fatal(err)
		}
		a.Beat(t, api.HeartbeatRequest{Hello: &api.Hello{}})
		settle(t, f)
		if n := get(t, f, a.ID); n.Status != api.StatusRevoked || n.Presence != api.PresenceUnknown || n.Hello != nil {
			t.Errorf("it is %+v", n)
		}
		if n := f.Count(t, `FROM events WHERE kind = 'node_online'`); n != 0 {
			t.Error("it was said to be online")
		}
	})
}

func TestWaitingOnNamesTheNode(t *testing.T) {
	f := servertest.New(t, servertest.SQLite(t))
	a := f.Join(t, "web")
	c := a.Stop(t)
	is := func(want string) {
		t.Helper()
		if got := f.State(t, c.ID).WaitingOn; got != want {
			t.Errorf("want %q, got %q", want, got)
		}
	}
	is("node web, not seen yet")
	a.Beat(t, api.HeartbeatRequest{})
	is("node web, online")
	f.Clock.Move(window)
	is("node web, offline, last seen 2026-11-30T12:00:00Z")
	is("node web, offline, last seen " + f.Clock.Now().Add(-window).Format(time.RFC3339))
}
