package api

import "time"

// Stop stops the instance of an app and keeps it, so that restart brings it
// back. What does not run is stopped already.
var Stop = Kind[StopPayload, StopResult]{
	name:       "stop",
	tier:       TierOperate,
	deadline:   5 * time.Minute,
	afterCrash: Repeat,
	lane:       func(p StopPayload) string { return laneOf(p.AppID) },
}

// StopPayload names the app.
type StopPayload struct {
	AppID string `json:"app_id"`
	App   string `json:"app"`
}

// StopResult names the deployments whose instances stand still now.
type StopResult struct {
	DeploymentIDs []string `json:"deployment_ids"`
}

// Validate wants both names.
func (p StopPayload) Validate() error { return validateApp(p.AppID, p.App) }
