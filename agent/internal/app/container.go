package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/docker"
	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/internal/durable"
)

// grace is how long an instance may take to end.
const grace = 10 * time.Second

// containers is the runtime docker.
type containers struct {
	engine *docker.Driver
	node   string
	trace  string // a file that is there when containers were made; "" to keep no such trace
}

// never reports whether it is known that no container was ever made here: only
// then an engine that is absent has none.
func (c containers) never() bool {
	_, err := os.Stat(c.trace)
	return c.trace != "" && errors.Is(err, fs.ErrNotExist)
}

func (c containers) name() api.Runtime { return api.RuntimeDocker }

func (c containers) version(ctx context.Context) (string, error) { return c.engine.Version(ctx) }

func (c containers) instances(ctx context.Context, app string) (ours []instance, err error) {
	having := map[string]string{labelNode: c.node}
	if app != "" {
		having[labelApp] = app
	}
	all, err := c.engine.List(ctx, having)
	if errors.Is(err, docker.Absent) && c.never() {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	for _, found := range all {
		if i, ok := c.read(found); ok {
			ours = append(ours, i)
		}
	}
	return ours, nil
}

func (c containers) look(ctx context.Context, id string) (instance, bool, error) {
	found, err := c.engine.Inspect(ctx, id)
	if errors.Is(err, docker.NotFound) {
		return instance{}, false, nil
	}
	if err != nil {
		return instance{}, false, fmt.Errorf("look at container: %w", err)
	}
	i, ours := c.read(found)
	return i, ours, nil
}

// read takes a container for an instance if it is one of this node's.
func (c containers) read(from docker.Container) (instance, bool) {
	i, ours := labelled(c.node, from.Labels)
	if !ours {
		return instance{}, false
	}
	i.by, i.id, i.name, i.image = c, from.ID, from.Name, from.Image
	i.phase = map[docker.State]phase{docker.Created: made, docker.Running: running, docker.Restarting: looping, docker.Exited: down}[from.State]
	i.restart = map[docker.Restart]restart{docker.OnFailure: onFailure, docker.UnlessStopped: always}[from.Restart]
	i.restarts, i.startedAt, i.fault, i.unhealthy = from.Restarts, from.StartedAt, from.Fault, from.Unhealthy
	i.held = i.phase == down && i.restart == always && i.fault == ""
	if from.Exit != nil {
		i.exit = &exit{code: from.Exit.Code, oom: from.Exit.OOM, at: from.Exit.At}
	}
	return i, true
}

func (c containers) lines(ctx context.Context, id string, most int) ([]string, error) {
	text, err := c.engine.Logs(ctx, id, most)
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	return strings.Split(text, "\n"), nil
}

func (c containers) create(ctx context.Context, p plan) (instance, error) {
	if c.never() {
		if err := durable.Write(c.trace, nil, 0o600); err != nil {
			return instance{}, fmt.Errorf("note that there are containers: %w", err)
		}
	}
	spec := c.spec(p)
	id, err := c.engine.Create(ctx, spec)
	if errors.Is(err, docker.NameTaken) {
		return instance{}, c.nameTaken(ctx, spec.Name, err)
	}
	if err != nil {
		return instance{}, fmt.Errorf("create container: %w", err)
	}
	i, found, err := c.look(ctx, id)
	if err == nil && !found {
		err = fmt.Errorf("container %s went away as soon as it was made: look who removes containers on this node", short(id))
	}
	return i, err
}

func (c containers) spec(p plan) docker.Spec {
	env := make([]string, 0, len(p.Env))
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		env = append(env, name+"="+p.Env[name])
	}
	return docker.Spec{
		Name: instanceName(p.App, p.DeploymentID), Image: p.Image, Command: p.Command, Env: env, Labels: labels(c.node, p),
		Port: p.Port, Publish: p.publish,
		NanoCPUs: int64(p.Resources.CPUCores * 1e9), MemBytes: p.Resources.MemBytes, Grace: grace,
	}
}

func (c containers) nameTaken(ctx context.Context, name string, err error) error {
	holder, lookErr := c.engine.Inspect(ctx, name)
	if lookErr != nil {
		return fmt.Errorf("create container: %w", err)
	}
	id := short(holder.ID)
	return fmt.Errorf("the name %s is taken by container %s, which is not an instance of this node: "+
		"rename it (docker rename %s NEW-NAME) or remove it, then deploy again", name, id, id)
}

func (c containers) start(ctx context.Context, id string) (taken bool, err error) {
	if err := c.engine.Start(ctx, id); err != nil {
		return errors.Is(err, docker.PortTaken), fmt.Errorf("start container: %w", err)
	}
	return false, nil
}

func (c containers) stop(ctx context.Context, id string) error {
	if err := c.engine.Stop(ctx, id, grace); err != nil {
		return fmt.Errorf("stop container %s: %w", short(id), err)
	}
	return nil
}

func (c containers) remove(ctx context.Context, id string) error {
	if err := c.engine.Remove(ctx, id); err != nil {
		return fmt.Errorf("remove container %s: %w", short(id), err)
	}
	return nil
}

func (c containers) setRestart(ctx context.Context, id string, r restart) error {
	policy := map[restart]docker.Restart{never: docker.Never, onFailure: docker.OnFailure, always: docker.UnlessStopped}[r]
	if err := c.engine.SetRestart(ctx, id, policy); err != nil {
		return fmt.Errorf("set restart policy of container %s: %w", short(id), err)
	}
	return nil
}

// short is a container's id as people know it.
func short(id string) string { return id[:min(12, len(id))] }
