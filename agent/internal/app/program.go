package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/beckon-fleet/beckon/agent/internal/archive"
	"github.com/beckon-fleet/beckon/agent/internal/process"
	"github.com/beckon-fleet/beckon/api"
)

// programs is the runtime process. Its instances' ids are those of their
// deployments.
type programs struct {
	driver *process.Driver
	source Source
	node   string
}

func (p programs) name() api.Runtime { return api.RuntimeProcess }

func (p programs) version(context.Context) (string, error) { return p.driver.Runtime() }

func (p programs) instances(_ context.Context, app string) (ours []instance, err error) {
	all, err := p.driver.List(app)
	if err != nil {
		return nil, err
	}
	for _, found := range all {
		if i, ok := p.read(found); ok {
			ours = append(ours, i)
		}
	}
	return ours, nil
}

func (p programs) look(_ context.Context, id string) (instance, bool, error) {
	found, there, err := p.driver.Look(id)
	if err != nil || !there {
		return instance{}, false, err
	}
	i, ours := p.read(found)
	return i, ours, nil
}

func (p programs) read(from process.Process) (instance, bool) {
	i, ours := labelled(p.node, from.Labels)
	if !ours {
		return instance{}, false
	}
	i.by, i.id, i.name = p, from.ID, from.Name
	i.phase = map[process.State]phase{process.Made: made, process.Running: running, process.Waiting: looping, process.Ended: down}[from.State]
	i.restart = map[process.Restart]restart{process.OnFailure: onFailure, process.Always: always}[from.Restart]
	i.restarts, i.startedAt, i.fault, i.notes = from.Restarts, from.StartedAt, from.Fault, from.Notes
	i.held, i.lost = from.Held, from.Lost
	if from.Exit != nil {
		i.exit = &exit{code: from.Exit.Code, oom: from.Exit.OOM, at: from.Exit.At}
	}
	return i, true
}

func (p programs) lines(_ context.Context, id string, most int) (texts []string, err error) {
	lines, err := p.driver.Lines(id, most)
	for _, l := range lines {
		texts = append(texts, l.Line)
	}
	return texts, err
}

// fetch has nothing to do: an archive is of no use to anybody but the instance
// that create makes of it.
func (p programs) fetch(context.Context, api.DeployPayload) error { return nil }

func (p programs) create(ctx context.Context, pl plan) (instance, error) {
	if pl.publish != "" { // a program listens where it is reached
		_, port, err := net.SplitHostPort(pl.publish)
		if err != nil {
			return instance{}, fmt.Errorf("read publish: %w", err)
		}
		if pl.Port, err = strconv.Atoi(port); err != nil {
			return instance{}, fmt.Errorf("read publish: %w", err)
		}
	}
	err := p.driver.Create(ctx, process.Spec{
		App: pl.AppID, ID: pl.DeploymentID, Name: instanceName(pl.App, pl.DeploymentID), Labels: labels(p.node, pl),
		Command: pl.Command, Env: environment(pl), Address: pl.publish,
		Limits: process.Limits{CPUCores: pl.Resources.CPUCores, MemBytes: pl.Resources.MemBytes},
	}, func(ctx context.Context, root, workshop string, owner *process.Owner) error {
		return p.unpack(ctx, *pl.Archive, root, workshop, owner)
	})
	if err != nil {
		return instance{}, fmt.Errorf("make instance: %w", err)
	}
	i, found, err := p.look(ctx, pl.DeploymentID)
	if err == nil && !found {
		err = errors.New("the instance went away as soon as it was made: look who removes its files on this node")
	}
	return i, err
}

// environment is what an app's program gets. PORT and HOST say where it must
// listen, whatever env says.
func environment(pl plan) (env []string) {
	for _, name := range slices.Sorted(maps.Keys(pl.Env)) {
		env = append(env, name+"="+pl.Env[name])
	}
	if host, port, err := net.SplitHostPort(pl.publish); err == nil {
		env = append(env, "HOST="+host, "PORT="+port)
	}
	return env
}

// What an archive may become: so many times its own size, where that is
// little a certain size, and never more than the largest.
const (
	inflation   = 20
	alwaysFine  = 64 << 20
	largest     = 4 << 30
	mostEntries = 100_000
	diskReserve = 64 << 20 // what an archive must leave free
)

// unpack downloads an archive and makes files of it.
func (p programs) unpack(ctx context.Context, a api.Archive, root, workshop string, owner *process.Owner) error {
	room, err := roomAt(root)
	if err != nil {
		return err
	}
	if a.SizeBytes > room {
		return fmt.Errorf("the archive has %d bytes and there is room for %d on this node: free some of its disk", a.SizeBytes, room)
	}
	path := filepath.Join(workshop, "archive")
	if err := p.download(ctx, a, path); err != nil {
		return fmt.Errorf("download archive %s: %w", a.FileID, err)
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open archive: %w", err)
	}
	defer os.Remove(path)
	defer file.Close()
	limits := archive.Limits{Bytes: min(max(inflation*a.SizeBytes, alwaysFine), largest, room-a.SizeBytes), Entries: mostEntries}
	var to *archive.Owner
	if owner != nil {
		to = &archive.Owner{UID: owner.UID, GID: owner.GID}
	}
	if err := archive.Unpack(ctx, file, root, limits, to); err != nil {
		return fmt.Errorf("unpack archive %s: %w", a.FileID, err)
	}
	return nil
}

// roomAt is how much may be written to the disk of a folder.
func roomAt(dir string) (int64, error) {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return 0, fmt.Errorf("look for room on disk: %w", err)
	}
	return max(0, int64(disk.Bavail)*int64(disk.Bsize)-diskReserve), nil
}

func (p programs) start(ctx context.Context, id string) (taken bool, err error) {
	err = p.driver.Start(ctx, id)
	return errors.Is(err, process.ErrAddressTaken), err
}

func (p programs) stop(ctx context.Context, id string) error { return p.driver.Stop(ctx, id) }

func (p programs) remove(ctx context.Context, id string) error { return p.driver.Remove(ctx, id) }

func (p programs) setRestart(_ context.Context, id string, r restart) error {
	return p.driver.SetRestart(id, map[restart]process.Restart{never: process.Never, onFailure: process.OnFailure, always: process.Always}[r])
}
