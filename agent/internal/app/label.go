package app

import (
	"strconv"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

// The labels of instances. They hold all that must outlive the agent.
const (
	labelNode       = "beckon.node"
	labelApp        = "beckon.app"
	labelAppName    = "beckon.app-name"
	labelDeployment = "beckon.deployment"
	labelRevision   = "beckon.revision"
	labelPort       = "beckon.port"
	labelPublish    = "beckon.publish"
	labelWindow     = "beckon.observe-s"
	labelRestart    = "beckon.restart"
	labelReplaces   = "beckon.replaces" // the deployment that ran when this one was made
)

// labels are those of an instance to be made.
func labels(node string, p plan) map[string]string {
	return map[string]string{
		labelNode: node, labelApp: p.AppID, labelAppName: p.App,
		labelDeployment: p.DeploymentID, labelRevision: strconv.FormatInt(p.Revision, 10),
		labelPort: strconv.Itoa(p.Port), labelPublish: p.publish,
		labelWindow: strconv.Itoa(int(p.Observe().Seconds())), labelRestart: string(p.Restart),
		labelReplaces: p.replaces,
	}
}

// labelled is what labels say of an instance, if it is one of the node's.
func labelled(node string, l map[string]string) (i instance, ours bool) {
	revision, err := strconv.ParseInt(l[labelRevision], 10, 64)
	if err != nil || l[labelNode] != node || l[labelApp] == "" || l[labelDeployment] == "" {
		return instance{}, false
	}
	port, _ := strconv.Atoi(l[labelPort])
	seconds, _ := strconv.Atoi(l[labelWindow])
	return instance{
		deployment: l[labelDeployment], app: l[labelApp], appName: l[labelAppName], revision: revision,
		port: port, publish: l[labelPublish], window: time.Duration(seconds) * time.Second,
		wanted: api.RestartPolicy(l[labelRestart]), replaces: l[labelReplaces],
	}, true
}

// instanceName is told apart by the random end of a deployment's id.
func instanceName(app, deployment string) string {
	return "beckon-" + app + "-" + deployment[max(0, len(deployment)-8):]
}
