package app_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/beckon-fleet/beckon/agent/internal/docker"
	"github.com/beckon-fleet/beckon/agent/internal/docker/dockertest"
	"github.com/beckon-fleet/beckon/api"
)

// containers are the names of the node's.
func (n *node) containers(filters ...string) []string {
	n.t.Helper()
	args := append([]string{"ps", "--all", "--filter=label=beckon.node=" + n.id, "--format={{.Names}}"}, filters...)
	return strings.Fields(dockertest.CLI(n.t, args...))
}

// inspect asks the docker command.
func inspect(t *testing.T, container, format string) string {
	t.Helper()
	return dockertest.CLI(t, "inspect", "--format", format, container)
}

// byHand makes the container of p as an agent does, and goes no further.
func (n *node) byHand(p api.DeployPayload, labels map[string]string) (id string) {
	n.t.Helper()
	spec := docker.Spec{
		Name: instanceName(p), Image: p.Image, Command: p.Command, Port: p.Port,
		Env: []string{"PORT=8080", "TEXT=by hand"},
		Labels: map[string]string{
			"beckon.node": n.id, "beckon.app": p.AppID, "beckon.app-name": p.App, "beckon.deployment": p.DeploymentID,
			"beckon.revision": "1", "beckon.observe-s": "1",
		},
	}
	maps.Copy(spec.Labels, labels)
	spec.Publish = spec.Labels["beckon.publish"]
	id, err := n.bench.engine.Create(n.ctx, spec)
	if err != nil {
		n.t.Fatal(err)
	}
	return id
}
