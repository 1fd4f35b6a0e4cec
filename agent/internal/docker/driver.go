// Package docker speaks to the Docker engine of this machine, from 20.10 on.
// It is a thin driver: it knows nothing of apps, its types are its own, every
// call ends by itself, and what fails says why in words for a person.
package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// How long the engine may take. A pull is bounded by the silence in it.
const (
	greeting = 10 * time.Second // to answer at all
	patience = time.Minute      // for any other call
	quiet    = 2 * time.Minute  // in a pull without a sign of progress
	longest  = time.Hour        // for a whole pull
)

// Driver is one engine. It connects when it is needed and again after the
// engine was away, so that it may be made before there is an engine.
type Driver struct {
	host  string // as a person writes it
	at    *url.URL
	quiet time.Duration

	mu     sync.Mutex
	engine *client.Client // nil until an engine has told its API version
}

// New drives the engine at host, as unix:///var/run/docker.sock. "" is what
// DOCKER_HOST says, else the default socket. It fails only on settings that
// cannot work, never because no engine answers.
func New(host string) (*Driver, error) {
	host = cmp.Or(host, os.Getenv(client.EnvOverrideHost), client.DefaultDockerHost)
	at, err := client.ParseHostURL(host)
	if err != nil || at.Scheme != "unix" && at.Scheme != "tcp" {
		return nil, fmt.Errorf("the Docker engine %q cannot be used: write unix:///path/of/socket or tcp://host:port into DOCKER_HOST", host)
	}
	d := &Driver{host: host, at: at, quiet: quiet}
	engine, err := d.open()
	if err != nil {
		return nil, fmt.Errorf("set up the client of Docker (look at DOCKER_HOST, DOCKER_CERT_PATH and DOCKER_TLS_VERIFY): %w", err)
	}
	return d, engine.Close()
}

// Close lets go of idle connections.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.engine == nil {
		return nil
	}
	return d.engine.Close()
}

// Version is the engine's own, as 20.10.24; its error says why the engine
// cannot be used.
func (d *Driver) Version(ctx context.Context) (version string, err error) {
	err = d.call(ctx, greeting, func(ctx context.Context, engine *client.Client) error {
		v, err := engine.ServerVersion(ctx, client.ServerVersionOptions{})
		version, _, _ = strings.Cut(v.Version, "+") // Debian appends its own
		return err
	})
	return version, err
}

// call runs do, bounds it and explains its error. An engine that was upgraded
// under a running agent may refuse the API version agreed on with its
// predecessor before it does anything; then they agree anew.
func (d *Driver) call(ctx context.Context, limit time.Duration, do func(context.Context, *client.Client) error) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	engine, err := d.connect(bounded)
	if err != nil {
		return d.explain(ctx, err)
	}
	err = do(bounded, engine)
	if err != nil && strings.Contains(err.Error(), "client version ") {
		d.forget(engine)
		if engine, err = d.connect(bounded); err == nil {
			err = do(bounded, engine)
		}
	}
	return d.explain(ctx, err)
}

// connect agrees with the engine on an API version, once. It is done here and
// not by the client, which on a failure goes on with its newest version and
// holds a lock that no context ends.
func (d *Driver) connect(ctx context.Context) (*client.Client, error) {
	d.mu.Lock()
	engine := d.engine
	d.mu.Unlock()
	if engine != nil {
		return engine, nil
	}
	engine, err := d.open()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, greeting)
	defer cancel()
	if _, err := engine.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		if errdefs.IsInvalidArgument(err) {
			err = &Error{TooOld, fmt.Sprintf("the Docker engine at %s is too old: upgrade it to 20.10 or newer", d.host)}
		}
		return nil, errors.Join(err, engine.Close())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engine = engine
	return engine, nil
}

func (d *Driver) forget(engine *client.Client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.engine == engine {
		d.engine = nil
	}
}

func (d *Driver) open() (*client.Client, error) {
	return client.New(client.FromEnv, client.WithHost(d.host), client.WithDialContext(d.dial))
}

// dial says in our words why nobody is there: the client drops the cause.
func (d *Driver) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if d.at.Scheme == "unix" {
		network, addr = "unix", d.at.Host
	}
	dialer := net.Dialer{Timeout: greeting}
	conn, err := dialer.DialContext(ctx, network, addr)
	if err == nil || ctx.Err() != nil {
		return conn, err
	}
	return nil, d.unreachable(err)
}
