package api

import "net/http"

// Leave takes the calling node out of the cluster for good (PROTOCOL.md
// section 2). While deployments may have instances on it, it is refused with
// workloads_running and their list, unless forced: then they become failed.
var Leave = Endpoint[LeaveRequest, LeaveResponse]{Method: http.MethodPost, Path: "/agent/v1/leave", Fails: []Code{WorkloadsRunning}}

// LeaveRequest may force it.
type LeaveRequest struct {
	Force bool `query:"force" json:"-"` // though deployments may have instances here
}

// LeaveResponse says what the node is now.
type LeaveResponse struct {
	Status NodeStatus `json:"status"`
}
