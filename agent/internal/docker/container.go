package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
)

// Spec is a container to be made. Its log is kept in files of bounded size
// and its processes gain no privileges.
type Spec struct {
	Name     string
	Image    string
	Command  []string // instead of the image's own
	Env      []string // NAME=value
	Labels   map[string]string
	Port     int    // on which it listens (TCP), 0 for none
	Publish  string // ADDR:PORT of the machine that leads to Port
	NanoCPUs int64  // 0 for no limit
	MemBytes int64  // 0 for no limit
	Grace    time.Duration
}

// Restart is an engine's restart policy.
type Restart string

// The restart policies.
const (
	Never         Restart = "no"
	OnFailure     Restart = "on-failure" // at most five times in a row
	UnlessStopped Restart = "unless-stopped"
)

// Container is what the engine knows of one.
type Container struct {
	ID        string
	Name      string
	Image     string // the id of the image it was made from
	Labels    map[string]string
	State     State
	Restart   Restart
	Restarts  int       // by the engine, since it was last started by hand
	StartedAt time.Time // zero when it never was
	Exit      *Exit     // the last one; nil when there was none or nobody knows
	Fault     string    // why the engine could not start it
	Unhealthy bool      // by the health check of its image
}

// State is where a container stands.
type State string

// The states. A paused container is a running one.
const (
	Created    State = "created" // never started
	Running    State = "running"
	Restarting State = "restarting" // exited; the engine will start it again
	Exited     State = "exited"
)

// Exit is the end of a container's main process.
type Exit struct {
	Code int
	OOM  bool // killed for using more memory than it may
	At   time.Time
}

// Create makes a container that nothing restarts, and does not start it.
func (d *Driver) Create(ctx context.Context, s Spec) (id string, err error) {
	seconds := int(s.Grace.Seconds())
	config := &container.Config{
		Image: s.Image, Cmd: s.Command, Env: s.Env, Labels: s.Labels, StopTimeout: &seconds,
	}
	host := &container.HostConfig{
		LogConfig:     container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "10m", "max-file": "3"}},
		RestartPolicy: policy(Never),
		SecurityOpt:   []string{"no-new-privileges"},
		Resources:     container.Resources{NanoCPUs: s.NanoCPUs, Memory: s.MemBytes},
	}
	if s.Port != 0 {
		config.ExposedPorts, host.PortBindings, err = ports(s.Port, s.Publish)
		if err != nil {
			return "", err
		}
	}
	err = d.call(ctx, patience, func(ctx context.Context, engine *client.Client) error {
		made, err := engine.ContainerCreate(ctx, client.ContainerCreateOptions{Name: s.Name, Config: config, HostConfig: host})
		id = made.ID
		return err
	})
	return id, err
}

func ports(port int, publish string) (network.PortSet, network.PortMap, error) {
	own, ok := network.PortFrom(uint16(port), network.TCP)
	addr, err := netip.ParseAddrPort(publish)
	if err != nil || !ok {
		return nil, nil, fmt.Errorf("publish port %d at %q: not an ADDR:PORT", port, publish)
	}
	binding := network.PortBinding{HostIP: addr.Addr(), HostPort: strconv.Itoa(int(addr.Port()))}
	return network.PortSet{own: {}}, network.PortMap{own: {binding}}, nil
}

func policy(r Restart) container.RestartPolicy {
	p := container.RestartPolicy{Name: container.RestartPolicyMode(r)}
	if r == OnFailure {
		p.MaximumRetryCount = 5
	}
	return p
}

// SetRestart changes the restart policy of a container, which may be running.
func (d *Driver) SetRestart(ctx context.Context, id string, r Restart) error {
	return d.call(ctx, patience, func(ctx context.Context, engine *client.Client) error {
		p := policy(r)
		_, err := engine.ContainerUpdate(ctx, id, client.ContainerUpdateOptions{RestartPolicy: &p})
		return err
	})
}

// Start starts a container; one that runs already is left alone.
func (d *Driver) Start(ctx context.Context, id string) error {
	return d.call(ctx, patience, func(ctx context.Context, engine *client.Client) error {
		_, err := engine.ContainerStart(ctx, id, client.ContainerStartOptions{})
		return err
	})
}

// Stop asks a container to end and kills it after grace. One that does not
// run is left alone.
func (d *Driver) Stop(ctx context.Context, id string, grace time.Duration) error {
	return d.call(ctx, grace+patience, func(ctx context.Context, engine *client.Client) error {
		seconds := int(grace.Seconds())
		_, err := engine.ContainerStop(ctx, id, client.ContainerStopOptions{Timeout: &seconds})
		return err
	})
}

// Remove takes a container away, with what it wrote, killing it where it
// runs. One that is not there is removed already.
func (d *Driver) Remove(ctx context.Context, id string) error {
	err := d.call(ctx, patience, func(ctx context.Context, engine *client.Client) error {
		_, err := engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		return err
	})
	if errors.Is(err, NotFound) || err != nil && strings.Contains(err.Error(), "is already in progress") {
		return nil
	}
	return err
}

// List finds the containers that have all of labels, running or not.
func (d *Driver) List(ctx context.Context, labels map[string]string) (found []Container, err error) {
	filters := client.Filters{}
	for name, value := range labels {
		filters.Add("label", name+"="+value)
	}
	var ids []string
	err = d.call(ctx, patience, func(ctx context.Context, engine *client.Client) error {
		list, err := engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filters})
		for _, c := range list.Items {
			ids = append(ids, c.ID)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		c, err := d.Inspect(ctx, id)
		if errors.Is(err, NotFound) {
			continue // went away meanwhile
		}
		if err != nil {
			return nil, err
		}
		found = append(found, c)
	}
	return found, nil
}

// Inspect looks at one container, by id or name.
func (d *Driver) Inspect(ctx context.Context, id string) (c Container, err error) {
	err = d.call(ctx, patience, func(ctx context.Context, engine *client.Client) error {
		seen, err := engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		if err != nil {
			return err
		}
		if c, err = read(seen.Container); err != nil {
			return err
		}
		if c.State == Running && c.Restarts > 0 {
			c.Exit = exitBefore(ctx, engine, c.ID, seen.Container.State)
		}
		return nil
	})
	return c, err
}

func read(seen container.InspectResponse) (Container, error) {
	if seen.State == nil || seen.Config == nil || seen.HostConfig == nil {
		return Container{}, fmt.Errorf("read container %s: the engine's answer lacks its state", seen.ID)
	}
	c := Container{
		ID: seen.ID, Name: strings.TrimPrefix(seen.Name, "/"), Image: seen.Image, Labels: seen.Config.Labels,
		State: Exited, Restart: Restart(seen.HostConfig.RestartPolicy.Name), Restarts: seen.RestartCount,
		StartedAt: moment(seen.State.StartedAt), Fault: seen.State.Error,
	}
	switch {
	case seen.State.Restarting:
		c.State = Restarting
	case seen.State.Running:
		c.State = Running
	case c.StartedAt.IsZero():
		c.State = Created
	}
	if ended := moment(seen.State.FinishedAt); c.State != Running && !ended.IsZero() {
		c.Exit = &Exit{Code: seen.State.ExitCode, OOM: seen.State.OOMKilled, At: ended}
	}
	c.Unhealthy = seen.State.Health != nil && seen.State.Health.Status == container.Unhealthy
	return c, nil
}

// exitBefore finds in the engine's events how a container ended that it has
// started again since; its state has forgotten. It is nil when the events
// have, too.
func exitBefore(ctx context.Context, engine *client.Client, id string, state *container.State) (last *Exit) {
	ctx, cancel := context.WithTimeout(ctx, greeting)
	defer cancel()
	ended := moment(state.FinishedAt)
	events := engine.Events(ctx, client.EventsListOptions{
		Since:   ended.Add(-time.Second).Format(time.RFC3339Nano),
		Until:   state.StartedAt,
		Filters: client.Filters{}.Add("container", id).Add("event", "die", "oom"),
	})
	oom := false
	for {
		select {
		case e := <-events.Messages:
			if e.Action == "oom" {
				oom = true
				continue
			}
			if code, err := strconv.Atoi(e.Actor.Attributes["exitCode"]); err == nil {
				last = &Exit{Code: code, OOM: oom, At: ended}
			}
		case <-events.Err:
			return last
		}
	}
}

// moment reads a time of the engine's; its "never" is the zero time.
func moment(text string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}
	}
	return at
}

// Logs is the end of what a container wrote, at most lines lines of both
// streams in the order in which they came.
func (d *Driver) Logs(ctx context.Context, id string, lines int) (text string, err error) {
	const most = 1 << 20
	err = d.call(ctx, patience, func(ctx context.Context, engine *client.Client) error {
		stream, err := engine.ContainerLogs(ctx, id, client.ContainerLogsOptions{
			ShowStdout: true, ShowStderr: true, Tail: strconv.Itoa(lines),
		})
		if err != nil {
			return err
		}
		defer stream.Close()
		var both bytes.Buffer
		_, err = stdcopy.StdCopy(&both, &both, io.LimitReader(stream, most))
		text = both.String()
		return err
	})
	return text, err
}
