// Package app runs the instances of apps on this node and says the truth
// about them (PROTOCOL.md sections 6 and 8). What it did not make, it never
// touches.
package app

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/docker"
	"github.com/beckon-fleet/beckon/agent/internal/process"
	"github.com/beckon-fleet/beckon/api"
)

// Config is what a Service needs to know.
type Config struct {
	Node    string           // the id of this node: only its instances are ours
	Docker  *docker.Driver   // what runs images
	Trace   string           // a file that this package makes with the first container; optional
	Process *process.Driver  // what runs archives
	Source  Source           // of archives
	Clock   func() time.Time // time.Now unless said
	Log     *slog.Logger     // nowhere unless said
}

// Source is where archives come from.
type Source interface {
	// Open reads a file from a byte on. An error that is an api.Error whose
	// code says give up is final; after any other, and when the reader breaks
	// off, Open is called again for the rest. What is read is checked against
	// the digest of the signed command, so that a Source need not.
	Open(ctx context.Context, id string, offset int64) (io.ReadCloser, error)
}

// Service carries out the commands of apps. Commands of one app must come one
// after the other; those of several may come side by side.
type Service struct {
	node     string
	docker   runtime
	process  runtime
	programs *process.Driver
	clock    func() time.Time
	log      *slog.Logger

	mu    sync.Mutex
	busy  map[string]int // app ids, and how many commands are at each
	vexed string         // why instances were not started again, the last time
}

// New makes a Service. It works without an engine; its calls then say why
// there is none.
func New(cfg Config) *Service {
	s := &Service{
		node: cfg.Node, docker: containers{cfg.Docker, cfg.Node, cfg.Trace},
		process: programs{cfg.Process, cfg.Source, cfg.Node}, programs: cfg.Process,
		clock: cfg.Clock, log: cfg.Log, busy: map[string]int{},
	}
	if s.clock == nil {
		s.clock = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s
}

// runtimes are what runs instances; the process first, as it never hangs.
func (s *Service) runtimes() []runtime { return []runtime{s.process, s.docker} }

// runtime is the one of a name.
func (s *Service) runtime(name api.Runtime) runtime {
	if name == api.RuntimeProcess {
		return s.process
	}
	return s.docker
}

// Runtimes names what can run instances here now, with its version. Docker is
// missing when no engine answers.
func (s *Service) Runtimes(ctx context.Context) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	found := map[string]string{}
	for _, r := range s.runtimes() {
		version, err := r.version(ctx)
		if err != nil {
			s.log.Debug("no runtime", "runtime", r.name(), "error", err)
			continue
		}
		found[string(r.name())] = version
	}
	return found
}

// Keep starts again what should run and lost what kept it going: all processes
// after a restart of the machine, for instance. Containers are their engine's
// to keep. Call it at the start and every few seconds.
func (s *Service) Keep() {
	started, err := s.programs.Keep()
	if len(started) > 0 {
		s.log.Warn("instances had no supervisor and were started again", "instances", started)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	words := ""
	if err != nil {
		words = err.Error()
	}
	if words != s.vexed && words != "" {
		s.log.Error("instances could not be started again; it is tried on and on", "err", err)
	}
	s.vexed = words
}

// aside is how long a runtime may take whose answer is not needed.
const aside = 5 * time.Second

// instances are those of an app in all runtimes, newest first. Where it is
// plain that the app's are processes, an engine that does not answer is no
// reason to fail.
func (s *Service) instances(ctx context.Context, app string, asked api.Runtime) ([]instance, error) {
	all, err := s.process.instances(ctx, app)
	if err != nil {
		return nil, err
	}
	needed := asked != api.RuntimeProcess && len(all) == 0
	asking, cancel := ctx, context.CancelFunc(func() {})
	if !needed {
		asking, cancel = context.WithTimeout(ctx, aside)
	}
	defer cancel()
	more, err := s.docker.instances(asking, app)
	switch {
	case err != nil && needed:
		return nil, err
	case errors.Is(err, docker.Absent):
	case err != nil:
		s.log.Warn("nobody knows whether the app has containers, too", "app", app, "error", err)
	}
	all = append(all, more...)
	newestFirst(all)
	return all, ctx.Err()
}

// work marks an app as changing until the returned function is called.
func (s *Service) work(app string) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy[app]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.busy[app]--; s.busy[app] == 0 {
			delete(s.busy, app)
		}
	}
}

// changing are the apps that a command is at.
func (s *Service) changing() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.busy)
}
