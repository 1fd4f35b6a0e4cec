package app_test

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/app"
	"github.com/beckon-fleet/beckon/agent/internal/docker"
	"github.com/beckon-fleet/beckon/agent/internal/docker/dockertest"
	"github.com/beckon-fleet/beckon/api"
)

func (n *node) stop() {
	n.t.Helper()
	if _, err := n.Stop(n.ctx, api.StopPayload{AppID: n.app, App: "web"}); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) restart() (api.RestartResult, error) {
	return n.Restart(n.ctx, api.RestartPayload{AppID: n.app, App: "web"})
}

func TestRestart(t *testing.T) { onBoth(t, testRestart) }

func testRestart(t *testing.T, b bench) {
	t.Run("makes a new start, which a probe finds", func(t *testing.T) {
		n := b.node(t)
		p := n.server("one")
		before := n.deploy(p)
		acked := time.Now()
		payload := api.RestartPayload{AppID: n.app, App: "web"}
		if _, done, err := n.agent().Restarted(n.ctx, payload, acked); done || err != nil {
			t.Errorf("before the restart the probe says %t, %v", done, err)
		}
		res, err := n.restart()
		if err != nil {
			t.Fatal(err)
		}
		if res.DeploymentID != p.DeploymentID || res.Instance.ID != before.ID || !res.Instance.StartedAt.After(*before.StartedAt) {
			t.Errorf("after %+v came %+v", before, res)
		}
		n.answers(before.Publish, "one")
		probe, done, err := n.agent().Restarted(n.ctx, payload, acked)
		if err != nil || !done || probe.DeploymentID != p.DeploymentID || !probe.Instance.StartedAt.Equal(*res.Instance.StartedAt) {
			t.Errorf("after the restart the probe says %+v, %t, %v", probe, done, err)
		}
	})

	for _, policy := range []api.RestartPolicy{api.RestartAlways, api.RestartOnFailure, api.RestartNever} {
		t.Run("of a stopped instance, "+string(policy), func(t *testing.T) {
			n := b.node(t)
			p := n.server("one")
			p.Restart = policy
			i := n.deploy(p)
			for range 2 { // a repeat does no harm
				res, err := n.Stop(n.ctx, api.StopPayload{AppID: n.app, App: "web"})
				if err != nil || !slices.Equal(res.DeploymentIDs, []string{p.DeploymentID}) {
					t.Fatalf("stopped %+v, %v", res, err)
				}
			}
			if state, words := n.sees(p); state != api.DeploymentStopped {
				t.Errorf("a stopped instance is %s: %s", state, words)
			}
			if _, err := n.restart(); err != nil {
				t.Fatal(err)
			}
			n.answers(i.Publish, "one")
			if got := n.policy(p); got != string(policy) {
				t.Errorf("the restart policy was %s and is %s", policy, got)
			}
			if state, words := n.sees(p); state != api.DeploymentRunning {
				t.Errorf("a restarted instance is %s: %s", state, words)
			}
		})
	}

	t.Run("of an instance that does not stay up", func(t *testing.T) {
		n := b.node(t)
		p := n.next("say", "hello", "later", "3", "wait", "1h")
		n.deploy(p)
		_, err := n.restart()
		hasWords(t, err, "web was restarted and failed: it exited with code 3", "hello")
		n.only(p)
		if got := n.policy(p); got != "always" {
			t.Errorf("its restart policy is %s", got)
		}
	})

	t.Run("of what is not there", func(t *testing.T) {
		n := b.node(t)
		_, err := n.restart()
		hasWords(t, err, "restart web", "deploy it first")
		if _, done, err := n.Restarted(n.ctx, api.RestartPayload{AppID: n.app, App: "web"}, time.Time{}); done || err != nil {
			t.Errorf("the probe says %t, %v", done, err)
		}
	})
}

func TestRemove(t *testing.T) { onBoth(t, testRemove) }

func testRemove(t *testing.T, b bench) {
	for name, steps := range map[string][]string{"one that ends": {"wait", "1h"}, "one that is deaf": {"deaf", "wait", "1h"}} {
		t.Run(name, func(t *testing.T) {
			n := b.node(t)
			p := n.next(steps...)
			n.deploy(p)
			payload := api.RemovePayload{AppID: n.app, App: "web"}
			res, err := n.Remove(n.ctx, payload)
			if err != nil || !slices.Equal(res.DeploymentIDs, []string{p.DeploymentID}) {
				t.Errorf("removed %+v, %v", res, err)
			}
			if left := n.made(); len(left) != 0 {
				t.Errorf("%q are left", left)
			}
			if res, err := n.Remove(n.ctx, payload); err != nil || res.DeploymentIDs == nil || len(res.DeploymentIDs) != 0 {
				t.Errorf("the repeat removed %+v, %v", res, err)
			}
			if res, err := n.Stop(n.ctx, api.StopPayload(payload)); err != nil || res.DeploymentIDs == nil || len(res.DeploymentIDs) != 0 {
				t.Errorf("nothing was stopped as %+v, %v", res, err)
			}
		})
	}
}

func TestObserve(t *testing.T) { onBoth(t, testObserve) }

func testObserve(t *testing.T, b bench) {
	t.Run("running", func(t *testing.T) {
		n := b.node(t)
		p := n.server("one")
		i := n.deploy(p)
		all, silent := n.agent().Observe(n.ctx)
		if len(silent) > 0 || len(all) != 1 || all[0].State != api.DeploymentRunning || all[0].Message != "" || all[0].Instance.Publish != i.Publish {
			t.Errorf("it sees %+v, %v", all, silent)
		}
		if b.runtime != api.RuntimeDocker {
			return
		}
		dockertest.CLI(t, "stop", instanceName(p))
		if state, words := n.sees(p); state != api.DeploymentStopped {
			t.Errorf("stopped by hand it is %s: %s", state, words)
		}
	})

	t.Run("a crash loop", func(t *testing.T) {
		n := b.node(t)
		p := n.next("say", "hello", "wait", "2500ms", "exit", "3")
		n.deploy(p)
		var words string
		n.until("it is failed", func() bool {
			var state api.DeploymentState
			state, words = n.sees(p)
			return state == api.DeploymentFailed
		})
		if !strings.Contains(words, "exited with code 3") || !strings.Contains(words, "hello") {
			t.Errorf("it is failed because %q", words)
		}
		n.stop()
		if state, words := n.sees(p); state != api.DeploymentStopped {
			t.Errorf("stopped in a crash loop it is %s: %s", state, words)
		}
	})

	t.Run("one crash", func(t *testing.T) {
		n := b.node(t)
		p := n.next("first", "4500ms", "5", "wait", "1h")
		p.ObserveS = 3
		n.deploy(p)
		n.until("it has been started again", func() bool {
			return n.runs(p) && n.restarts(p) == 1
		})
		if state, words := n.sees(p); state != api.DeploymentFailed || !strings.Contains(words, "exited with code 5") {
			t.Errorf("just started again it is %s: %s", state, words)
		}
		n.until("it runs again", func() bool {
			state, _ := n.sees(p)
			return state == api.DeploymentRunning
		})
		if _, err := n.restart(); err != nil { // a start by us counts anew
			t.Error(err)
		}
	})

	t.Run("an end by itself", func(t *testing.T) {
		n := b.node(t)
		p := n.next("wait", "2500ms", "say", "bye", "exit", "6")
		p.Restart = api.RestartNever
		n.deploy(p)
		n.until("it has ended", func() bool { return !n.runs(p) })
		state, words := n.sees(p)
		if state != api.DeploymentFailed || !strings.Contains(words, "exited with code 6") || !strings.Contains(words, "bye") {
			t.Errorf("it is %s: %s", state, words)
		}
	})
}

func TestWithoutEngine(t *testing.T) {
	service := func(t *testing.T, socket string) *app.Service {
		engine, err := docker.New("unix://" + socket)
		if err != nil {
			t.Fatal(err)
		}
		return app.New(app.Config{Node: "node_1", Docker: engine, Process: driver(t.TempDir())})
	}
	payload := api.DeployPayload{DeploymentID: "dep_1", AppID: "app_1", App: "web", Revision: 1, AppSpec: api.AppSpec{Image: "x"}}

	t.Run("absent", func(t *testing.T) {
		socket := filepath.Join(t.TempDir(), "docker.sock")
		s := service(t, socket)
		_, err := s.Deploy(t.Context(), payload)
		hasWords(t, err, "deploy revision 1 of web", "there is no Docker engine at unix://"+socket, "install Docker")
		if _, silent := s.Observe(t.Context()); silent[api.RuntimeDocker] == nil || len(silent) != 1 {
			t.Errorf("without an engine silent are %v", silent)
		}
		if got := s.Runtimes(t.Context()); got["docker"] != "" || got["process"] == "" {
			t.Errorf("the runtimes are %v", got)
		}
	})

	t.Run("hanging", func(t *testing.T) {
		socket := filepath.Join(t.TempDir(), "docker.sock")
		hang(t, socket)
		s := service(t, socket)
		for name, call := range map[string]func(context.Context) error{
			"deploy":  func(ctx context.Context) error { _, err := s.Deploy(ctx, payload); return err },
			"restart": func(ctx context.Context) error { _, err := s.Restart(ctx, api.RestartPayload{App: "web"}); return err },
			"stop":    func(ctx context.Context) error { _, err := s.Stop(ctx, api.StopPayload{App: "web"}); return err },
			"remove":  func(ctx context.Context) error { _, err := s.Remove(ctx, api.RemovePayload{App: "web"}); return err },
			"observe": func(ctx context.Context) error { _, silent := s.Observe(ctx); return silent[api.RuntimeDocker] },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- call(ctx) }()
			select {
			case err := <-ended:
				hasWords(t, err, "Docker engine at unix://"+socket)
			case <-time.After(5 * time.Second):
				t.Fatalf("%s hangs beyond its context", name)
			}
		}
	})
}

// hang accepts and never answers.
func hang(t *testing.T, socket string) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
		}
	}()
}

func TestRuntimes(t *testing.T) {
	s := app.New(app.Config{Node: "node_1", Docker: dockertest.Engine(t), Process: driver(t.TempDir())})
	want := dockertest.CLI(t, "version", "--format", "{{.Server.Version}}")
	if got := s.Runtimes(t.Context())["docker"]; got == "" || !strings.HasPrefix(want, got) {
		t.Errorf("the version is %q, the docker command says %q", got, want)
	}
}
