// Package app runs the instances of apps on this node and says the truth
// about them (PROTOCOL.md sections 6 and 8). What it did not make, it never
// touches.
package app

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/docker"
)

// Config is what a Service needs to know.
type Config struct {
	Node   string           // the id of this node: only its instances are ours
	Docker *docker.Driver   // what runs them
	Clock  func() time.Time // time.Now unless said
	Log    *slog.Logger     // nowhere unless said
}

// Service carries out the commands of apps. Commands of one app must come one
// after the other; those of several may come side by side.
type Service struct {
	node    string
	runtime runtime
	clock   func() time.Time
	log     *slog.Logger

	mu   sync.Mutex
	busy map[string]int // app ids, and how many commands are at each
}

// New makes a Service. It works without an engine; its calls then say why
// there is none.
func New(cfg Config) *Service {
	s := &Service{
		node: cfg.Node, runtime: containers{cfg.Docker, cfg.Node},
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

// Runtimes names what can run instances here now, with its version. It is
// empty when no engine answers.
func (s *Service) Runtimes(ctx context.Context) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	version, err := s.runtime.version(ctx)
	if err != nil {
		s.log.Debug("no runtime", "runtime", s.runtime.name(), "error", err)
		return map[string]string{}
	}
	return map[string]string{s.runtime.name(): version}
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
