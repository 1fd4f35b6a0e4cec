package app_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/beckon-fleet/beckon/agent/internal/docker/dockertest"
	"github.com/beckon-fleet/beckon/api"
)

func TestDeploy(t *testing.T) {
	b := newBench(t)

	t.Run("answers on its own port, and follows the spec", func(t *testing.T) {
		n := b.node(t)
		p := n.server("one")
		p.Env["ZED"], p.Env["ABLE"] = "26", "1"
		p.Resources = api.Resources{CPUCores: 0.5, MemBytes: 32 << 20}
		i := n.deploy(p)
		n.answers(i.Publish, "one")
		if !strings.HasPrefix(i.Publish, "127.0.0.1:") || i.Runtime != "docker" || i.Port != 8080 || i.StartedAt == nil || i.Restarts != 0 {
			t.Errorf("the instance is %+v", i)
		}
		for format, want := range map[string]string{
			"{{.Id}} {{.Image}} {{.Name}}": i.ID + " " + i.Image + " /" + instanceName(p),
			`{{index .Config.Labels "beckon.node"}} {{index .Config.Labels "beckon.app"}} {{index .Config.Labels "beckon.app-name"}} ` +
				`{{index .Config.Labels "beckon.deployment"}} {{index .Config.Labels "beckon.revision"}}`: strings.Join([]string{n.id, n.app, "web", p.DeploymentID, "1"}, " "),
			"{{.HostConfig.RestartPolicy.Name}}":                                 "unless-stopped",
			"{{.HostConfig.NanoCpus}} {{.HostConfig.Memory}}":                    "500000000 33554432",
			"{{.HostConfig.SecurityOpt}}":                                        "[no-new-privileges]",
			"{{.HostConfig.LogConfig.Type}} {{.HostConfig.LogConfig.Config}}":    "json-file map[max-file:3 max-size:10m]",
			"{{index .Config.Env 0}} {{index .Config.Env 1}} {{.Config.Cmd}}":    "ABLE=1 PORT=8080 [serve]",
			"{{.Config.StopTimeout}} {{.State.Status}} {{.HostConfig.Binds}}":    "10 running []",
			"{{(index (index .HostConfig.PortBindings \"8080/tcp\") 0).HostIp}}": "127.0.0.1",
		} {
			if got := inspect(t, i.ID, format); got != want {
				t.Errorf("%s is %q, want %q", format, got, want)
			}
		}
	})
}

func TestDeployRules(t *testing.T) { onBoth(t, testDeployRules) }

func testDeployRules(t *testing.T, b bench) {
	t.Run("replaces the revision before", func(t *testing.T) {
		n := b.node(t)
		old := n.deploy(n.server("one"))
		p := n.server("two")
		i := n.deploy(p)
		n.answers(i.Publish, "two")
		n.only(p)
		if old.Publish == i.Publish {
			t.Errorf("both revisions had %s, though they ran side by side", i.Publish)
		}
	})

	t.Run("sets the restart policy only when proven", func(t *testing.T) {
		n := b.node(t)
		for _, policy := range []api.RestartPolicy{api.RestartAlways, api.RestartOnFailure, api.RestartNever} {
			p := n.next("wait", "1h")
			p.Restart = policy
			n.deploy(p)
			if got := n.policy(p); got != string(policy) {
				t.Errorf("%s became %q", policy, got)
			}
		}
	})

	t.Run("of an older revision is refused", func(t *testing.T) {
		n := b.node(t)
		late, p := n.server("one"), n.server("two")
		n.deploy(p)
		n.refuse(late, "revision 1 of web was not deployed", "newer revision 2")
		if _, err := n.Stop(n.ctx, api.StopPayload{AppID: n.app, App: "web"}); err != nil {
			t.Fatal(err)
		}
		n.refuse(late, "newer revision 2")
		n.only(p)
		if state, _ := n.sees(p); state != api.DeploymentStopped {
			t.Errorf("the stopped newest is %s", state)
		}
	})
}

// Whatever goes wrong with a new revision, the one before keeps its place and
// the error says why.
func TestDeployFails(t *testing.T) { onBoth(t, testDeployFails) }

func testDeployFails(t *testing.T, b bench) {
	b.failsAndKeeps(t, "exit at once", time.Minute, func(n *node, p *api.DeployPayload) {
		n.does(p, "say", "first words", "cry", "last words", "exit", "3")
	}, "revision 2 of web failed: it exited with code 3", "revision 1 runs on", "\nfirst words", "\nlast words")
	b.failsAndKeeps(t, "exit late in the window", time.Minute, func(n *node, p *api.DeployPayload) {
		n.does(p, "wait", "1200ms", "exit", "4")
		p.ObserveS = 2
	}, "it exited with code 4 after ", "revision 1 runs on")
	b.failsAndKeeps(t, "exit without a failure", time.Minute, func(n *node, p *api.DeployPayload) {
		n.does(p, "say", "all done", "exit", "0")
	}, "it exited with code 0", "all done")
	b.failsAndKeeps(t, "exit of what is never restarted", time.Minute, func(n *node, p *api.DeployPayload) {
		n.does(p, "exit", "5")
		p.Restart = api.RestartNever
	}, "it exited with code 5")
	b.failsAndKeeps(t, "a log that is long and bites", time.Minute, func(n *node, p *api.DeployPayload) {
		n.does(p, append(slices.Repeat([]string{"raw"}, 12), "say", "the end", "exit", "1")...)
	}, "\nred bell end\nxxx", "the end")
	b.failsAndKeeps(t, "a port that another program has", time.Minute, func(n *node, p *api.DeployPayload) {
		p.Publish = listen(t, "127.0.0.1:0").Addr().String()
	}, "is in use on this node", "revision 1 runs on")
	b.failsAndKeeps(t, "too little time", 12*time.Second, func(n *node, p *api.DeployPayload) {
		p.ObserveS = 200
	}, "the time for it ran out", "revision 1 runs on")
}

// What only an image can do wrong.
func TestDeployImageFails(t *testing.T) {
	b := newBench(t)
	b.failsAndKeeps(t, "out of memory", time.Minute, func(n *node, p *api.DeployPayload) {
		p.Command, p.Resources.MemBytes = []string{"eat"}, 16<<20
	}, "more memory than it may", "exit code 137")
	b.failsAndKeeps(t, "no such program", time.Minute, func(n *node, p *api.DeployPayload) {
		p.Image = dockertest.Image(t, "testdata/instance", `ENTRYPOINT ["/nothing"]`)
	}, "start container", "no such file or directory", "revision 1 runs on")
	b.failsAndKeeps(t, "an image that fails its health check", time.Minute, func(n *node, p *api.DeployPayload) {
		p.Image = dockertest.Image(t, "testdata/instance", `HEALTHCHECK --interval=100ms --retries=1 CMD ["/program", "exit", "1"]`)
		p.Command, p.ObserveS = []string{"wait", "1h"}, 20
	}, "health check", "revision 1 runs on")
	b.failsAndKeeps(t, "a registry that is not there", 8*time.Second, func(n *node, p *api.DeployPayload) {
		p.Image = "127.0.0.1:1/nothing:1"
	}, "the registry of image 127.0.0.1:1/nothing:1 cannot be reached", "revision 1 runs on")
	b.failsAndKeeps(t, "what is no image", time.Minute, func(n *node, p *api.DeployPayload) {
		p.Image = "../containers/json"
	}, "is not the name of an image", "revision 1 runs on")
}

// failsAndKeeps deploys a revision that runs and then one that is spoilt.
func (b bench) failsAndKeeps(t *testing.T, name string, limit time.Duration, spoil func(*node, *api.DeployPayload), words ...string) {
	t.Run(name, func(t *testing.T) {
		n := b.node(t)
		good := n.server("good")
		i := n.deploy(good)
		bad := n.server("bad")
		spoil(n, &bad)
		ctx, cancel := context.WithTimeout(n.ctx, limit)
		defer cancel()
		_, err := n.Deploy(ctx, bad)
		hasWords(t, err, words...)
		if !utf8.ValidString(err.Error()) || strings.ContainsAny(err.Error(), "\x1b\x07") || strings.ContainsRune(err.Error(), '\u202e') {
			t.Errorf("the error holds control characters: %q", err)
		}
		n.answers(i.Publish, "good")
		n.only(good)
	})
}

// With a fixed publish two revisions cannot run side by side.
func TestDeployFixedPublish(t *testing.T) { onBoth(t, testDeployFixedPublish) }

func testDeployFixedPublish(t *testing.T, b bench) {
	t.Run("success, then failures that roll back", func(t *testing.T) {
		n := b.node(t)
		at := freePort(t)
		server := func(text string) api.DeployPayload {
			p := n.server(text)
			p.Publish, p.Restart = at, api.RestartOnFailure
			return p
		}
		n.deploy(server("one"))
		n.answers(at, "one")
		good := server("two")
		n.deploy(good)
		n.answers(at, "two")
		n.only(good)

		bad := server("three")
		n.does(&bad, "say", "oh", "wait", "300ms", "exit", "7")
		n.refuse(bad, "it exited with code 7", "revision 2 runs again", "oh")
		n.answers(at, "two")
		slow := server("four")
		slow.ObserveS = 200
		ctx, cancel := context.WithTimeout(n.ctx, 12*time.Second)
		defer cancel()
		_, err := n.Deploy(ctx, slow)
		hasWords(t, err, "the time for it ran out", "revision 2 runs again")
		n.answers(at, "two")
		n.only(good)
		if got := n.policy(good); got != "on_failure" {
			t.Errorf("the old one came back with the restart policy %q", got)
		}
	})

	t.Run("an app that was stopped stays so", func(t *testing.T) {
		n := b.node(t)
		good := n.server("good")
		good.Publish = freePort(t)
		n.deploy(good)
		n.stop()
		n.refuse(n.next("exit", "1"), "revision 2 of web failed")
		n.only(good)
		if state, _ := n.sees(good); state != api.DeploymentStopped {
			t.Errorf("it is %s", state)
		}
	})
}

// A deploy that comes again goes on with what is there.
func TestDeployAgain(t *testing.T) { onBoth(t, testDeployAgain) }

func testDeployAgain(t *testing.T, b bench) {
	t.Run("after success", func(t *testing.T) {
		n := b.node(t)
		p := n.server("one")
		first := n.deploy(p)
		again, err := n.agent().Deploy(n.ctx, p)
		if err != nil || again.Instance.ID != first.ID || !again.Instance.StartedAt.Equal(*first.StartedAt) {
			t.Errorf("got %+v, %v; want %+v", again, err, first)
		}
		n.only(p)
	})

	t.Run("after the agent ended while it watched", func(t *testing.T) {
		n := b.node(t)
		old := n.server("old")
		n.deploy(old)
		p := n.server("new")
		p.ObserveS = 2
		ctx, stop := context.WithCancel(n.ctx)
		ended := make(chan error)
		go func() {
			_, err := n.Deploy(ctx, p)
			ended <- err
		}()
		n.until("the new one runs", func() bool {
			return n.runs(p)
		})
		if state, _ := n.sees(p); state != "" {
			t.Errorf("it is reported as %s while it is watched", state)
		}
		left := time.Now()
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("the end of the agent is %v", err)
		}
		if got := n.made(); len(got) != 2 {
			t.Fatalf("it did not leave things as they are: %q", got)
		}
		if i := n.deploy(p); i.Restarts != 0 || !i.StartedAt.Before(left) {
			t.Errorf("it was started again: %+v", i)
		}
		n.only(p)
	})
}

// What a crash leaves between two calls of an engine.
func TestDeployAgainContainers(t *testing.T) {
	b := newBench(t)

	t.Run("after a crash between create and start", func(t *testing.T) {
		n := b.node(t)
		p := n.server("one")
		id := n.byHand(p, map[string]string{"beckon.publish": freePort(t)})
		i := n.deploy(p)
		if i.ID != id {
			t.Errorf("%s was made instead of %s", i.ID, id)
		}
		n.answers(i.Publish, "by hand")
		n.only(p)
	})

	t.Run("after a crash between create and start, when the port is gone", func(t *testing.T) {
		n := b.node(t)
		p := n.server("one")
		taken := listen(t, "127.0.0.1:0").Addr().String()
		n.byHand(p, map[string]string{"beckon.publish": taken})
		i := n.deploy(p)
		n.answers(i.Publish, "one")
		n.only(p)
	})

	t.Run("removes what crashes left", func(t *testing.T) {
		n := b.node(t)
		left, p := n.server("left"), n.server("new")
		n.byHand(left, map[string]string{"beckon.publish": freePort(t)})
		n.deploy(p)
		n.only(p)
	})

	t.Run("a crash of the agent between stop and start", func(t *testing.T) {
		n := b.node(t)
		at := freePort(t)
		good := n.server("good")
		good.Publish = at
		n.deploy(good)
		bad := n.next("exit", "9")
		bad.Publish, bad.Port = at, 8080
		id := n.byHand(bad, map[string]string{"beckon.publish": at, "beckon.revision": "2", "beckon.replaces": good.DeploymentID})
		dockertest.CLI(t, "stop", instanceName(good))
		dockertest.CLI(t, "start", id)
		_, err := n.agent().Deploy(n.ctx, bad)
		hasWords(t, err, "it exited with code 9", "revision 1 runs again")
		n.answers(at, "good")
		n.only(good)
	})
}

// What Beckon did not make on this node is never touched.
func TestForeignContainers(t *testing.T) {
	b := newBench(t)

	t.Run("one with our name", func(t *testing.T) {
		n := b.node(t)
		p := n.server("one")
		id := dockertest.CLI(t, "create", "--name", instanceName(p), b.image, "wait", "1h")
		t.Cleanup(func() { dockertest.CLI(t, "rm", "--force", id) })
		n.refuse(p, "is taken by container "+id[:12], "docker rename")
		inspect(t, id, "{{.Id}}")
	})

	t.Run("one of another node with the same app", func(t *testing.T) {
		n := b.node(t)
		other := &node{t: t, ctx: n.ctx, bench: b, id: dockertest.Node(t), dir: n.dir, app: n.app}
		other.Service = other.agent()
		theirs := other.server("theirs")
		at := other.deploy(theirs).Publish
		plain := dockertest.CLI(t, "run", "--detach", "--label", "beckon.app="+n.app, b.image, "wait", "1h")
		t.Cleanup(func() { dockertest.CLI(t, "rm", "--force", plain) })

		ours := n.server("ours")
		n.deploy(ours)
		if all, silent := n.Observe(n.ctx); len(silent) > 0 || len(all) != 1 || all[0].DeploymentID != ours.DeploymentID {
			t.Errorf("the node sees %+v, %v", all, silent)
		}
		if _, err := n.Stop(n.ctx, api.StopPayload{AppID: n.app, App: "web"}); err != nil {
			t.Error(err)
		}
		res, err := n.Remove(n.ctx, api.RemovePayload{AppID: n.app, App: "web"})
		if err != nil || !slices.Equal(res.DeploymentIDs, []string{ours.DeploymentID}) {
			t.Errorf("removed %+v, %v", res, err)
		}
		other.answers(at, "theirs")
		if got := inspect(t, plain, "{{.State.Running}}"); got != "true" {
			t.Error("a container without our labels was touched")
		}
	})
}
