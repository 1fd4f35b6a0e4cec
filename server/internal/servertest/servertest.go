// Package servertest builds the services of a control plane on a real database
// and with real keys, wired as package server wires them, for tests of their
// rules. Time stands still until the test moves it.
package servertest

import (
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/app"
	"github.com/beckon-fleet/beckon/server/internal/command"
	"github.com/beckon-fleet/beckon/server/internal/event"
	"github.com/beckon-fleet/beckon/server/internal/file"
	"github.com/beckon-fleet/beckon/server/internal/node"
	"github.com/beckon-fleet/beckon/server/internal/nudge"
	"github.com/beckon-fleet/beckon/server/internal/pki"
	"github.com/beckon-fleet/beckon/server/internal/store"
	"github.com/beckon-fleet/beckon/server/internal/store/storetest"
)

// Clock stands still until it is moved.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// Now fits what takes a clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Move moves the clock, back where by is below 0.
func (c *Clock) Move(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(by)
}

// Fleet is the services of one control plane.
type Fleet struct {
	Clock     *Clock
	Store     *store.Store
	Authority *pki.Authority
	Hub       *nudge.Hub
	Nodes     *node.Service
	Commands  *command.Service
	Apps      *app.Service
	Events    *event.Service
	Files     *file.Service
}

// Each runs do with a fleet on an empty database of each kind, beside other
// tests.
func Each(t *testing.T, do func(*testing.T, *Fleet)) {
	t.Helper()
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, url string) { do(t, New(t, url)) })
}

// EachBubble is Each in a bubble of package synctest: what waits is told from
// what is still under way.
func EachBubble(t *testing.T, do func(*testing.T, *Fleet)) {
	t.Helper()
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, url string) {
		synctest.Test(t, func(t *testing.T) { do(t, New(t, url)) })
	})
}

// New opens the database and builds a fleet on it.
func New(t *testing.T, url string) *Fleet {
	t.Helper()
	clock := &Clock{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	authority, err := pki.Open(t.TempDir(), clock.Now, nil)
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), url, clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return wire(clock, st, authority, t.TempDir())
}

// Restarted is the fleet after a restart of its server: all that was only in
// memory is gone.
func (f *Fleet) Restarted() *Fleet { return wire(f.Clock, f.Store, f.Authority, f.Files.Dir) }

// wire is what wire in package server does.
func wire(clock *Clock, st *store.Store, authority *pki.Authority, files string) *Fleet {
	log := slog.New(slog.DiscardHandler)
	f := &Fleet{Clock: clock, Store: st, Authority: authority, Hub: nudge.NewHub(), Events: &event.Service{Store: st, Log: log}}
	f.Nodes = &node.Service{
		Store: st, Hub: f.Hub, Authority: authority, Clock: clock.Now, Log: log,
		Pace: api.HeartbeatPace, AgentURL: "https://server:8443",
	}
	f.Commands = &command.Service{Store: st, Hub: f.Hub, Signer: authority.Signer(), Waiting: f.Nodes.Waiting}
	f.Apps = &app.Service{Store: st, Commands: f.Commands}
	f.Apps.Follow()
	f.Files = &file.Service{Store: st, Dir: files, Log: log, Users: app.Users, Serves: app.Serves}
	f.Nodes.Reset = f.Commands.Reset
	f.Nodes.Wanted = command.Wanted
	f.Nodes.Active = app.Active
	f.Nodes.Running = app.Running
	f.Nodes.Left = func(tx *store.Tx, node, reason string) error {
		return errors.Join(f.Commands.Left(tx, node, reason), f.Apps.Left(tx, node, reason))
	}
	f.Nodes.Start()
	return f
}

// EventsOf lists the kinds of the events about a command, a deployment, a node
// or an app, the oldest first.
func (f *Fleet) EventsOf(t testing.TB, about string) (kinds []string) {
	t.Helper()
	err := f.Store.View(t.Context(), func(tx *store.Tx) error {
		rows, err := tx.Query(`
			SELECT kind FROM events WHERE subject = $1 OR subject = '' AND (node_id = $1 OR app_id = $1) ORDER BY id`, about)
		if err != nil {
			return err
		}
		kinds, err = store.Collect(rows, store.ScanText)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return kinds
}

// Count answers SELECT COUNT(*) with what follows it.
func (f *Fleet) Count(t testing.TB, from string, args ...any) (n int) {
	t.Helper()
	err := f.Store.View(t.Context(), func(tx *store.Tx) error {
		return tx.QueryRow(`SELECT COUNT(*) `+from, args...).Scan(&n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Do runs SQL that stands for what no call does, as another server's work.
func (f *Fleet) Do(t testing.TB, statement string, args ...any) {
	t.Helper()
	err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(statement, args...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// SQLite is the address of a new SQLite database, where one kind will do.
func SQLite(t testing.TB) string {
	return "sqlite:" + filepath.Join(t.TempDir(), "state.db")
}
