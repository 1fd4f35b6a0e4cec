package agent

import (
	"context"
	"errors"

	"github.com/beckon-fleet/beckon/agent/internal/link"
	"github.com/beckon-fleet/beckon/agent/internal/state"
	"github.com/beckon-fleet/beckon/api"
)

// Leave takes this machine out of its cluster (PROTOCOL.md section 2) and
// forgets who it was. The agent may be running: it learns it from its next
// call. While instances run here the error is api.WorkloadsRunning, unless
// forced. A server that does not answer is an error: nothing is forgotten.
func Leave(ctx context.Context, cfg Config, force bool) (node string, err error) {
	if cfg, err = cfg.withDefaults(); err != nil {
		return "", err
	}
	folder, err := state.Open(cfg.State, cfg.Clock, cfg.Log)
	if err != nil {
		return "", err
	}
	id, err := folder.Identity()
	if err != nil {
		return "", err
	}
	if id == nil {
		return "", ErrNotJoined
	}
	pin, err := id.Pin()
	if err != nil {
		return "", err
	}
	certificate := id.TLS()
	way := link.New(link.Config{
		Server: id.Server, Version: cfg.Version, Clock: cfg.Clock, Dial: cfg.Dial, Wrap: cfg.Wrap,
	}, &certificate, pin)
	defer way.Close()
	_, err = link.Call(ctx, way, api.Leave, api.LeaveRequest{Force: force}, 0)
	if err != nil && !errors.Is(err, api.NodeRevoked) { // that one says it is out already: an earlier answer was lost
		return "", err
	}
	return id.Name, folder.Forget()
}
