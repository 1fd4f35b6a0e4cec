package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

// Config is what an agent is made of. The zero value of each field but State is
// usable.
type Config struct {
	State   string // the folder of all that must not be lost
	Version string
	Tier    *int   // the ceiling of this install, 0 to 3; nil is not stated
	Docker  string // the engine's socket, as unix:///var/run/docker.sock; "" is the usual one
	Pace    Pace
	// NoStream has the agent poll only: slower, with the same outcome.
	NoStream bool
	Clock    func() time.Time // every stored, compared or shown time; timers are the real ones
	Log      *slog.Logger
	// Dial replaces the network, for tests.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Wrap stands between the agent and the network, so that tests and tracing
	// see every request and its answer, before a join as well.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// Pace is how often things are done, where the server does not say it.
type Pace struct {
	Refetch time.Duration // of every document, cursors or not
	Observe time.Duration // of what really runs
	Poll    time.Duration // how long the server is asked to hold a poll
}

var standardPace = Pace{Refetch: api.RefetchPace, Observe: 30 * time.Second, Poll: 25 * time.Second}

func (c Config) withDefaults() (Config, error) {
	if c.State == "" {
		return c, errors.New("the agent needs a state folder")
	}
	c.Version = cmp.Or(c.Version, "0.0.0-dev")
	c.Pace.Refetch = cmp.Or(c.Pace.Refetch, standardPace.Refetch)
	c.Pace.Observe = cmp.Or(c.Pace.Observe, standardPace.Observe)
	c.Pace.Poll = cmp.Or(c.Pace.Poll, standardPace.Poll)
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c, nil
}
