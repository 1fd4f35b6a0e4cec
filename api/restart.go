package api

import "time"

// Restart stops and starts the instance of an app, a stopped one included. It
// is probed after a crash: an instance that started after the command was
// begun is its effect.
var Restart = Kind[RestartPayload, RestartResult]{
	name:       "restart",
	tier:       TierOperate,
	deadline:   5 * time.Minute,
	afterCrash: Probe,
	lane:       func(p RestartPayload) string { return laneOf(p.AppID) },
}

// RestartPayload names the app.
type RestartPayload struct {
	AppID string `json:"app_id"`
	App   string `json:"app"`
}

// RestartResult is the instance after the restart, and its deployment.
type RestartResult struct {
	DeploymentID string          `json:"deployment_id"`
	Instance     RunningInstance `json:"instance"`
}

// Validate wants both names.
func (p RestartPayload) Validate() error { return validateApp(p.AppID, p.App) }
