package api

import "time"

// Deploy runs a revision of an app on a node (PROTOCOL.md section 6). It
// succeeds only once the new instance has lived through its observation; when
// it fails, the instance before it keeps its place or gets it back. Running it
// again by the same deployment id adopts what is already there.
var Deploy = Kind[DeployPayload, DeployResult]{
	name:       "deploy",
	tier:       TierDeploy,
	deadline:   15 * time.Minute,
	afterCrash: Repeat,
	lane:       func(p DeployPayload) string { return laneOf(p.AppID) },
	supersedes: true,
}

// DeployPayload names the deployment and says how its instance runs.
type DeployPayload struct {
	DeploymentID string `json:"deployment_id"`
	AppID        string `json:"app_id"`
	App          string `json:"app"` // its name
	Revision     int64  `json:"revision"`
	AppSpec
}

// DeployResult is the instance that runs.
type DeployResult struct {
	Instance RunningInstance `json:"instance"`
}

// Validate names what is missing or malformed.
func (p DeployPayload) Validate() error {
	if !nameOf(p.DeploymentID, 64) {
		return Errorf(Invalid, "deployment_id is required")
	}
	if p.Revision < 1 {
		return Errorf(Invalid, "revision must be above 0")
	}
	if err := validateApp(p.AppID, p.App); err != nil {
		return err
	}
	if a := p.Archive; a != nil && (!isHash(a.SHA256) || a.SizeBytes <= 0) {
		return Errorf(Invalid, "archive needs sha256 and size_bytes: what is downloaded is checked against them")
	}
	return p.AppSpec.Validate()
}

// laneOf is the lane of all commands that touch one app's instances.
func laneOf(app string) string { return "app:" + app }

func validateApp(id, name string) error {
	if !nameOf(id, 64) {
		return Errorf(Invalid, "app_id is required")
	}
	if !ValidName(name) {
		return Errorf(Invalid, "app is required, the name of the app")
	}
	return nil
}
