package server

import (
	"cmp"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

// Config is what a server is made of. The zero value of each field but Data
// is usable.
type Config struct {
	Data     string // folder of all that must not be lost
	Database string // "postgres://…"; else one SQLite file in Data
	AgentURL string // https://host:port of the agent listener, as nodes reach it
	Names    []string
	Version  string
	Protocol api.ProtocolRange
	Pace     Pace
	Clock    func() time.Time // every stored, signed, compared or shown time
	Log      *slog.Logger
}

// Pace is how often things are done.
type Pace struct {
	Heartbeat time.Duration // what agents are told
	Flush     time.Duration // of heartbeats into the database
	Sweep     time.Duration // for silent nodes and expired commands
}

// standardPace is the pace of a server in service.
var standardPace = Pace{Heartbeat: api.HeartbeatPace, Flush: 2 * time.Second, Sweep: 5 * time.Second}

func (c Config) withDefaults() (Config, error) {
	if c.Data == "" {
		return c, fmt.Errorf("the server needs a data folder")
	}
	c.Database = cmp.Or(c.Database, "sqlite:"+filepath.Join(c.Data, "beckon.db"))
	c.AgentURL = cmp.Or(c.AgentURL, "https://localhost:8443")
	c.Version = cmp.Or(c.Version, "0.0.0-dev")
	c.Protocol = cmp.Or(c.Protocol, api.Supported)
	c.Pace.Heartbeat = cmp.Or(c.Pace.Heartbeat, standardPace.Heartbeat)
	c.Pace.Flush = cmp.Or(c.Pace.Flush, standardPace.Flush)
	c.Pace.Sweep = cmp.Or(c.Pace.Sweep, standardPace.Sweep)
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c, nil
}
