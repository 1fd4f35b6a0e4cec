package app_test

import (
	"context"
	"crypto/rand"
	"flag"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/app"
	"github.com/beckon-fleet/beckon/agent/internal/docker"
	"github.com/beckon-fleet/beckon/agent/internal/docker/dockertest"
	"github.com/beckon-fleet/beckon/api"
)

// TestMain lets more tests run at once than there are processors: they wait
// for instances most of the time.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	m.Run()
}

// bench is what the tests of one group share.
type bench struct {
	engine *docker.Driver
	image  string
}

func newBench(t *testing.T) bench {
	t.Parallel()
	return bench{dockertest.Engine(t), dockertest.Image(t, filepath.Join("testdata", "instance"))}
}

// node is a node with one app.
type node struct {
	*app.Service
	t     *testing.T
	ctx   context.Context
	bench bench
	id    string
	app   string
	rev   int64
}

func (b bench) node(t *testing.T) *node {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	n := &node{t: t, ctx: ctx, bench: b, id: dockertest.Node(t), app: "app_" + random()}
	n.Service = n.agent()
	return n
}

// agent is a fresh agent on the node, as after a crash.
func (n *node) agent() *app.Service {
	return app.New(app.Config{Node: n.id, Docker: n.bench.engine})
}

func random() string { return strings.ToLower(rand.Text()) }

// next is a payload of the next revision, whose instance does steps.
func (n *node) next(steps ...string) api.DeployPayload {
	n.rev++
	return api.DeployPayload{
		DeploymentID: "dep_" + random(), AppID: n.app, App: "web", Revision: n.rev,
		AppSpec: api.AppSpec{Image: n.bench.image, Command: steps, ObserveS: 1},
	}
}

// server is the next revision, one that answers with text.
func (n *node) server(text string) api.DeployPayload {
	p := n.next("serve")
	p.Port, p.Env = 8080, map[string]string{"PORT": "8080", "TEXT": text}
	return p
}

// deploy deploys what must succeed.
func (n *node) deploy(p api.DeployPayload) api.RunningInstance {
	n.t.Helper()
	res, err := n.Deploy(n.ctx, p)
	if err != nil {
		n.t.Fatalf("deploy revision %d: %v", p.Revision, err)
	}
	return res.Instance
}

// refuse deploys what must fail with an error that has all of words.
func (n *node) refuse(p api.DeployPayload, words ...string) {
	n.t.Helper()
	res, err := n.Deploy(n.ctx, p)
	if err == nil {
		n.t.Fatalf("revision %d succeeded: %+v", p.Revision, res)
	}
	hasWords(n.t, err, words...)
}

func hasWords(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", words)
	}
	t.Logf("the error: %v", err)
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error %q does not say %q", err, w)
		}
	}
	if len(err.Error()) >= api.MaxMessage {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
}

// answers checks what is said at an ADDR:PORT. Docker accepts for an instance
// that was just started before it listens.
func (n *node) answers(at, want string) {
	n.t.Helper()
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	n.until(at+" answers "+want, func() bool {
		res, err := client.Get("http://" + at)
		if err != nil {
			return false
		}
		defer res.Body.Close()
		got, err := io.ReadAll(res.Body)
		return err == nil && string(got) == want
	})
}

// containers are the names of the node's.
func (n *node) containers(filters ...string) []string {
	n.t.Helper()
	args := append([]string{"ps", "--all", "--filter=label=beckon.node=" + n.id, "--format={{.Names}}"}, filters...)
	return strings.Fields(dockertest.CLI(n.t, args...))
}

// only checks that the node has no container but that of p.
func (n *node) only(p api.DeployPayload) {
	n.t.Helper()
	got := n.containers()
	if want := containerName(p); len(got) != 1 || got[0] != want {
		n.t.Errorf("the node has %q, want only %s", got, want)
	}
}

func containerName(p api.DeployPayload) string {
	return "beckon-" + p.App + "-" + p.DeploymentID[len(p.DeploymentID)-8:]
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
		Name: containerName(p), Image: p.Image, Command: p.Command, Port: p.Port,
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

// freePort is an ADDR:PORT that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	defer l.Close()
	return l.Addr().String()
}

func listen(t *testing.T, at string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// until looks again and again until done, or fails.
func (n *node) until(what string, done func() bool) {
	n.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-n.ctx.Done():
			n.t.Fatalf("waited for ever until %s", what)
		}
	}
}

// sees is what Observe says of a deployment, "" when it says nothing.
func (n *node) sees(p api.DeployPayload) (state api.DeploymentState, message string) {
	n.t.Helper()
	all, err := n.Observe(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := (api.Report{Deployments: all}).Validate(); err != nil {
		n.t.Errorf("the report is not valid: %v", err)
	}
	for _, r := range all {
		if r.DeploymentID == p.DeploymentID {
			return r.State, r.Message
		}
	}
	return "", ""
}
