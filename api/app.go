package api

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// App is what an operator wants to run, and where.
type App struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Spec      AppSpec   `json:"spec"`
	Placement Placement `json:"placement"`
	Revision  int64     `json:"revision"` // of its newest deployment, 0 before the first
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// AppSpec is how an instance of an app runs. Both sides check it.
type AppSpec struct {
	Image     string            `json:"image,omitempty" limit:"1..255"`     // what a container is made of, as registry/name:tag; or
	Archive   *Archive          `json:"archive,omitempty"`                  // what a process is run in
	Runtime   Runtime           `json:"runtime,omitempty"`                  // docker for an image and process for an archive, which is all there is
	Command   []string          `json:"command,omitempty" limit:"..100"`    // instead of the image's own
	Env       map[string]string `json:"env,omitempty" limit:"..200"`        // visible to proxies on the way; not for secrets
	Port      int               `json:"port,omitempty" limit:"0..65535"`    // on which the instance listens, 0 for none
	Publish   string            `json:"publish,omitempty"`                  // "ADDR:PORT" on the node; else a free port of 127.0.0.1
	Resources Resources         `json:"resources,omitzero"`                 // limits
	Restart   RestartPolicy     `json:"restart,omitempty"`                  // always unless said
	ObserveS  int               `json:"observe_s,omitempty" limit:"0..240"` // seconds without a restart until it counts as running; 10 unless said
}

// Runtime is what runs instances.
type Runtime string

// The runtimes.
const (
	RuntimeDocker  Runtime = "docker"
	RuntimeProcess Runtime = "process"
)

// Archive is an uploaded tar.gz whose files a process finds in its working
// directory. An operator names the file; the server fills in what it holds,
// and the signed command tells it to the node.
type Archive struct {
	FileID    string `json:"file_id"`
	SHA256    string `json:"sha256,omitempty"` // of the bytes as they were uploaded, hex
	SizeBytes int64  `json:"size_bytes,omitempty"`
}

// RuntimeName is the runtime that runs s.
func (s AppSpec) RuntimeName() Runtime {
	if s.Archive != nil {
		return RuntimeProcess
	}
	return RuntimeDocker
}

// Resources are limits of an instance; 0 is none.
type Resources struct {
	CPUCores float64 `json:"cpu_cores,omitempty" limit:"0..1024"` // of a core, as 0.5
	MemBytes int64   `json:"mem_bytes,omitempty"`                 // at least 6 MiB
}

// RestartPolicy says when an instance that ended is started again.
type RestartPolicy string

// The restart policies.
const (
	RestartAlways    RestartPolicy = "always"
	RestartOnFailure RestartPolicy = "on_failure" // at most five times in a row
	RestartNever     RestartPolicy = "never"
)

// Placement says where an app runs: on one node, or on every active node that
// has all of the labels.
type Placement struct {
	Node   string `json:"node,omitempty"` // id or name
	Labels Labels `json:"labels,omitempty"`
}

// Observe is the time an instance is watched before it counts as running.
func (s AppSpec) Observe() time.Duration {
	if s.ObserveS == 0 {
		return 10 * time.Second
	}
	return time.Duration(s.ObserveS) * time.Second
}

// Validate names the first member that breaks its rule.
func (s AppSpec) Validate() error {
	if err := s.validateSource(); err != nil {
		return err
	}
	switch {
	case len(s.Command) > 100:
		return Errorf(Invalid, "command has more than 100 words")
	case len(s.Env) > 200:
		return Errorf(Invalid, "env has more than 200 variables")
	case s.Port < 0 || s.Port > 65535:
		return Errorf(Invalid, "port must be 1 to 65535, or 0 for none")
	case s.Publish != "" && s.Port == 0:
		return Errorf(Invalid, "publish needs port, the one on which the instance listens")
	case s.Resources.CPUCores < 0 || s.Resources.CPUCores > 1024:
		return Errorf(Invalid, "resources.cpu_cores must be 0 (no limit) to 1024")
	case s.Resources.MemBytes != 0 && s.Resources.MemBytes < 6<<20:
		return Errorf(Invalid, "resources.mem_bytes must be 0 (no limit) or at least %d", 6<<20)
	case s.ObserveS < 0 || s.ObserveS > 240:
		return Errorf(Invalid, "observe_s must be 1 to 240, or 0 for 10")
	}
	switch s.Restart {
	case "", RestartAlways, RestartOnFailure, RestartNever:
	default:
		return Errorf(Invalid, "restart must be always, on_failure or never")
	}
	for name, value := range s.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return Errorf(Invalid, "env: %q is no name of a variable, or its value holds a NUL", name)
		}
	}
	for _, word := range s.Command {
		if strings.ContainsRune(word, 0) {
			return Errorf(Invalid, "command: a word holds a NUL")
		}
	}
	return s.validatePublish()
}

func (s AppSpec) validateSource() error {
	switch {
	case (s.Image == "") == (s.Archive == nil):
		return Errorf(Invalid, "an app is made either of an image (a container) or of an archive (a process)")
	case s.Runtime != "" && s.Runtime != s.RuntimeName():
		return Errorf(Invalid, "runtime %s does not fit: an image is run by docker, an archive by process", s.Runtime)
	case s.Archive == nil && (len(s.Image) > 255 || strings.ContainsAny(s.Image, " \t\r\n\x00")):
		return Errorf(Invalid, "image is a name of at most 255 characters, as registry/name:tag")
	case s.Archive != nil && !nameOf(s.Archive.FileID, 64):
		return Errorf(Invalid, "archive.file_id is required: the id that the upload gave")
	case s.Archive != nil && len(s.Command) == 0:
		return Errorf(Invalid, "command is required with an archive: the program to run and its arguments")
	}
	return nil
}

func (s AppSpec) validatePublish() error {
	if s.Publish == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(s.Publish)
	n, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || n < 1 || net.ParseIP(host) == nil {
		return Errorf(Invalid, "publish must be ADDR:PORT with an IP address, as 0.0.0.0:8088")
	}
	return nil
}

// AppRequest names an app by id or name.
type AppRequest struct {
	App string `path:"app" json:"-"` // id or name
}

// PutApp stores the wish; nothing is deployed by it. 201 when it is new.
var PutApp = Endpoint[PutAppRequest, PutAppResponse]{
	Method: http.MethodPut, Path: "/api/v1/apps/{app}", Also: []int{http.StatusCreated}, Fails: []Code{NotFound},
}

// PutAppRequest is the whole wish; what is absent is unset.
type PutAppRequest struct {
	Write
	App string `path:"app" json:"-" limit:"1..40"` // its name: lower-case letters, digits and -
	AppSpec
	Placement
}

// Validate names the first member that breaks its rule.
func (r PutAppRequest) Validate() error {
	if !ValidName(r.App) {
		return Errorf(Invalid, "the name of an app is 1 to 40 lower-case letters, digits and -, as web-1")
	}
	if (r.Node == "") == (len(r.Labels) == 0) {
		return Errorf(Invalid, "an app needs a place: either node or labels")
	}
	if err := r.Labels.Validate(); err != nil {
		return err
	}
	return r.AppSpec.Validate()
}

// PutAppResponse is the app as stored.
type PutAppResponse struct {
	App
	Created bool `json:"-"`
}

// HTTPStatus is 201 when the app is new.
func (r PutAppResponse) HTTPStatus() int {
	if r.Created {
		return http.StatusCreated
	}
	return http.StatusOK
}

// GetApp shows one app.
var GetApp = Endpoint[AppRequest, App]{Method: http.MethodGet, Path: "/api/v1/apps/{app}", Fails: []Code{NotFound}}

// ListApps lists the apps by name.
var ListApps = Endpoint[ListAppsRequest, Page[App]]{Method: http.MethodGet, Path: "/api/v1/apps"}

// ListAppsRequest pages.
type ListAppsRequest struct{ Cursor }

// DeleteApp removes the instances of an app from its nodes; the app itself
// goes with the last of them. 200 with the commands that were queued for it.
var DeleteApp = Endpoint[ChangeAppRequest, AppCommands]{
	Method: http.MethodDelete, Path: "/api/v1/apps/{app}", Also: []int{http.StatusAccepted}, Fails: []Code{NotFound, TierTooLow},
}

// RestartApp restarts the instances of an app on its nodes.
var RestartApp = Endpoint[ChangeAppRequest, AppCommands]{
	Method: http.MethodPost, Path: "/api/v1/apps/{app}/restart", Also: []int{http.StatusAccepted}, Fails: []Code{NotFound, TierTooLow},
}

// StopApp stops the instances of an app on its nodes; restart starts them again.
var StopApp = Endpoint[ChangeAppRequest, AppCommands]{
	Method: http.MethodPost, Path: "/api/v1/apps/{app}/stop", Also: []int{http.StatusAccepted}, Fails: []Code{NotFound, TierTooLow},
}

// ChangeAppRequest names the app.
type ChangeAppRequest struct {
	Write
	App string `path:"app" json:"-"` // id or name
}

// AppCommands are the commands that an action on an app queued, one a node.
type AppCommands struct {
	Items   []CommandStatus `json:"items"`
	Awaited bool            `json:"-"`
}

// HTTPStatus is 200 when all have ended or there are none, else 202.
func (a AppCommands) HTTPStatus() int {
	for _, c := range a.Items {
		if !c.State.Ended() {
			return http.StatusAccepted
		}
	}
	return http.StatusOK
}

// Waited reports whether the caller's wish to wait was followed.
func (a AppCommands) Waited() bool { return a.Awaited }

// DeployApp makes a new revision of an app: a deployment on each of its nodes.
var DeployApp = Endpoint[ChangeAppRequest, DeployAppResponse]{
	Method: http.MethodPost, Path: "/api/v1/apps/{app}/deployments", Status: http.StatusCreated,
	Also: []int{http.StatusOK, http.StatusAccepted}, Fails: []Code{NotFound, NoNodeMatches, NodeInactive, TierTooLow},
}

// RollbackApp goes back to an earlier revision that has run: its spec becomes
// the app's, and is deployed as a new revision where the app belongs now.
var RollbackApp = Endpoint[RollbackAppRequest, DeployAppResponse]{
	Method: http.MethodPost, Path: "/api/v1/apps/{app}/rollback", Status: http.StatusCreated, Also: []int{http.StatusOK, http.StatusAccepted},
	Fails: []Code{NotFound, NoEarlierRevision, FileMissing, NoNodeMatches, NodeInactive, TierTooLow},
}

// RollbackAppRequest names the app, and may name the revision.
type RollbackAppRequest struct {
	Write
	App      string `path:"app" json:"-"`                   // id or name
	Revision int64  `json:"revision,omitempty" limit:"0.."` // the newest before the app's that has run, unless said
}

// Validate refuses a revision that cannot be.
func (r RollbackAppRequest) Validate() error {
	if r.Revision < 0 {
		return Errorf(Invalid, "revision must be above 0, or absent for the one before")
	}
	return nil
}

// DeployAppResponse is the new revision.
type DeployAppResponse struct {
	Revision int64        `json:"revision"`
	Items    []Deployment `json:"items"`
	Awaited  bool         `json:"-"`
}

// HTTPStatus is 201; for a caller who waited it is 200 when each deployment
// runs or has ended, else 202.
func (r DeployAppResponse) HTTPStatus() int {
	settled := true
	for _, d := range r.Items {
		settled = settled && d.State.Settled()
	}
	return waitStatus(r.Awaited, settled)
}

// Waited reports whether the caller's wish to wait was followed.
func (r DeployAppResponse) Waited() bool { return r.Awaited }

func waitStatus(awaited, done bool) int {
	switch {
	case !awaited:
		return http.StatusCreated
	case done:
		return http.StatusOK
	}
	return http.StatusAccepted
}

// Deployment is one revision of an app on one node.
type Deployment struct {
	ID        string           `json:"id"`
	AppID     string           `json:"app_id"`
	App       string           `json:"app"` // its name
	NodeID    string           `json:"node_id"`
	Node      string           `json:"node"` // its name
	Revision  int64            `json:"revision"`
	Spec      AppSpec          `json:"spec"`
	State     DeploymentState  `json:"state"`
	Message   string           `json:"message,omitempty"` // for a person: why it is so
	CommandID string           `json:"command_id"`
	Instance  *RunningInstance `json:"instance,omitempty"`
	CreatedAt time.Time        `json:"created_at"`
	UpdatedAt time.Time        `json:"updated_at"`
}

// DeploymentState is where a deployment stands.
type DeploymentState string

// The states of a deployment (PROTOCOL.md section 13).
const (
	DeploymentWaiting  DeploymentState = "waiting"  // its command is not acked yet
	DeploymentStarting DeploymentState = "starting" // acked; the agent is at it, or away
	DeploymentRunning  DeploymentState = "running"
	DeploymentStopped  DeploymentState = "stopped"
	DeploymentFailed   DeploymentState = "failed"
	DeploymentReplaced DeploymentState = "replaced" // by a newer revision
	DeploymentRemoved  DeploymentState = "removed"
	DeploymentUnknown  DeploymentState = "unknown" // nobody can tell
)

// Settled reports whether the deploy itself is over, well or not.
func (s DeploymentState) Settled() bool { return s != DeploymentWaiting && s != DeploymentStarting }

// RunningInstance is a container or process of a deployment.
type RunningInstance struct {
	ID        string     `json:"id"`             // the runtime's, as a container id
	Name      string     `json:"name,omitempty"` // the runtime's
	Runtime   Runtime    `json:"runtime"`
	Port      int        `json:"port,omitempty"`     // its own
	Publish   string     `json:"publish,omitempty"`  // ADDR:PORT on the node that leads to it
	Image     string     `json:"image,omitempty"`    // the id of the image it runs
	Restarts  int        `json:"restarts,omitempty"` // by the runtime, since it was made
	StartedAt *time.Time `json:"started_at,omitempty"`
	Notes     []string   `json:"notes,omitempty"` // for a person: limits that are not enforced, and such
}

// ListDeployments lists deployments, the newest first.
var ListDeployments = Endpoint[ListDeploymentsRequest, Page[Deployment]]{Method: http.MethodGet, Path: "/api/v1/deployments"}

// ListDeploymentsRequest may name an app, a node or a state.
type ListDeploymentsRequest struct {
	Cursor
	App   string          `query:"app" json:"-"`  // id or name
	Node  string          `query:"node" json:"-"` // id or name
	State DeploymentState `query:"state" json:"-"`
}

// Validate refuses a state that there is not.
func (r ListDeploymentsRequest) Validate() error {
	return oneOf("state", r.State, DeploymentWaiting, DeploymentStarting, DeploymentRunning, DeploymentStopped,
		DeploymentFailed, DeploymentReplaced, DeploymentRemoved, DeploymentUnknown)
}

// GetDeployment shows one deployment.
var GetDeployment = Endpoint[DeploymentRequest, Deployment]{
	Method: http.MethodGet, Path: "/api/v1/deployments/{id}", Fails: []Code{NotFound},
}

// DeploymentRequest names a deployment.
type DeploymentRequest struct {
	ID string `path:"id" json:"-"`
}
