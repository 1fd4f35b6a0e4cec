package agent

import (
	"github.com/beckon-fleet/beckon/agent/internal/dispatch"
	"github.com/beckon-fleet/beckon/api"
)

// handlers is every command there is, and what carries it out.
func (a *Agent) handlers() {
	dispatch.On(a.dispatcher, api.Deploy, a.apps.Deploy)
	dispatch.On(a.dispatcher, api.Restart, a.apps.Restart, a.apps.Restarted)
	dispatch.On(a.dispatcher, api.Stop, a.apps.Stop)
	dispatch.On(a.dispatcher, api.Remove, a.apps.Remove)
}
