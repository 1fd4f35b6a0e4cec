package api

import "time"

// Remove takes all instances of an app off a node. What is not there is
// removed already. Containers without our label are never touched.
var Remove = Kind[RemovePayload, RemoveResult]{
	name:       "remove",
	tier:       TierDeploy,
	deadline:   5 * time.Minute,
	afterCrash: Repeat,
	lane:       func(p RemovePayload) string { return laneOf(p.AppID) },
}

// RemovePayload names the app.
type RemovePayload struct {
	AppID string `json:"app_id"`
	App   string `json:"app"`
}

// RemoveResult names the deployments whose instances are gone.
type RemoveResult struct {
	DeploymentIDs []string `json:"deployment_ids"`
}

// Validate wants both names.
func (p RemovePayload) Validate() error { return validateApp(p.AppID, p.App) }
