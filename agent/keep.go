package agent

import (
	"context"
	"time"
)

// keepPace is how soon a process that lost what kept it going is noticed.
const keepPace = 5 * time.Second

// keep has what should run here run, whether the control plane answers or not.
func (a *Agent) keep(context.Context) (time.Duration, error) {
	a.apps.Keep()
	return keepPace, nil
}
