package app_test

import (
	"context"
	"crypto/rand"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/app"
	"github.com/beckon-fleet/beckon/agent/internal/docker"
	"github.com/beckon-fleet/beckon/agent/internal/docker/dockertest"
	"github.com/beckon-fleet/beckon/agent/internal/process"
	"github.com/beckon-fleet/beckon/api"
)

// TestMain lets more tests run at once than there are processors: they wait
// for instances most of the time. As the supervisor of a process, or as an
// agent that is to be killed, it is that instead.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "supervise" {
		if err := process.Supervise(os.Args[2], slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
			panic(err)
		}
		return
	}
	if os.Getenv(mortalAgent) != "" {
		beMortalAgent()
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	m.Run()
}

// bench is what the tests of one group share: a runtime, and what it runs.
type bench struct {
	runtime api.Runtime
	engine  *docker.Driver
	image   string
	archive archiveFile
}

// newBench has Docker.
func newBench(t *testing.T) bench {
	t.Parallel()
	return bench{runtime: api.RuntimeDocker, engine: dockertest.Engine(t), image: dockertest.Image(t, filepath.Join("testdata", "instance"))}
}

// bare has no Docker.
func bare(t *testing.T) bench {
	t.Parallel()
	engine, err := docker.New("unix:///nowhere/docker.sock")
	if err != nil {
		t.Fatal(err)
	}
	return bench{runtime: api.RuntimeProcess, engine: engine, archive: packed(t)}
}

// onBoth runs a group of tests on each runtime: the rules are the same.
func onBoth(t *testing.T, group func(t *testing.T, b bench)) {
	t.Run("docker", func(t *testing.T) { group(t, newBench(t)) })
	t.Run("process", func(t *testing.T) { group(t, bare(t)) })
}

// node is a node with one app.
type node struct {
	*app.Service
	t     *testing.T
	ctx   context.Context
	bench bench
	id    string
	dir   string // of its processes
	app   string
	rev   int64
}

// node is one of a subtest that runs beside others.
func (b bench) node(t *testing.T) *node {
	t.Parallel()
	return b.alone(t)
}

// alone is one of a whole test.
func (b bench) alone(t *testing.T) *node {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	n := &node{t: t, ctx: ctx, bench: b, app: "app_" + random()}
	if b.runtime == api.RuntimeDocker {
		n.id, n.dir = dockertest.Node(t), filepath.Join(t.TempDir(), "apps")
	} else {
		n.id, n.dir = "node_"+random(), processes(t)
	}
	n.Service = n.agent()
	return n
}

// agent is a fresh agent on the node, as after a crash.
func (n *node) agent() *app.Service {
	return app.New(app.Config{
		Node: n.id, Docker: n.bench.engine, Process: n.programs(), Source: n.bench.archive,
		Trace: filepath.Join(filepath.Dir(n.dir), "containers"),
	})
}

func random() string { return strings.ToLower(rand.Text()) }

// next is a payload of the next revision, whose instance does steps.
func (n *node) next(steps ...string) api.DeployPayload {
	n.rev++
	p := api.DeployPayload{
		DeploymentID: "dep_" + random(), AppID: n.app, App: "web", Revision: n.rev,
		AppSpec: api.AppSpec{Image: n.bench.image, Command: steps, ObserveS: 1},
	}
	if n.bench.runtime == api.RuntimeProcess {
		p.Archive, p.Command = n.bench.archive.named(), append([]string{"./program"}, steps...)
	}
	return p
}

// does has the instance of p do steps instead.
func (n *node) does(p *api.DeployPayload, steps ...string) {
	p.Command = append(p.Command[:0:0], steps...)
	if n.bench.runtime == api.RuntimeProcess {
		p.Command = append([]string{"./program"}, steps...)
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

// only checks that the node has no instance but that of p.
func (n *node) only(p api.DeployPayload) {
	n.t.Helper()
	got := n.made()
	if want := instanceName(p); len(got) != 1 || got[0] != want {
		n.t.Errorf("the node has %q, want only %s", got, want)
	}
}

// made are the names of the node's instances, running or not.
func (n *node) made() []string {
	n.t.Helper()
	if n.bench.runtime == api.RuntimeDocker {
		return n.containers()
	}
	var names []string
	for _, p := range n.processes() {
		names = append(names, p.Name)
	}
	return names
}

// runs reports whether the instance of p runs, well or not.
func (n *node) runs(p api.DeployPayload) bool {
	n.t.Helper()
	if n.bench.runtime == api.RuntimeDocker {
		return slices.Contains(n.containers("--filter=status=running"), instanceName(p))
	}
	return n.process(p).State == process.Running
}

// policy is the restart policy of an instance as the runtime has it.
func (n *node) policy(p api.DeployPayload) string {
	n.t.Helper()
	if n.bench.runtime == api.RuntimeProcess {
		return string(n.process(p).Restart)
	}
	words := map[string]string{"unless-stopped 0": "always", "on-failure 5": "on_failure", "no 0": "never"}
	return words[inspect(n.t, instanceName(p), "{{.HostConfig.RestartPolicy.Name}} {{.HostConfig.RestartPolicy.MaximumRetryCount}}")]
}

// restarts is how often the runtime started the instance of p again.
func (n *node) restarts(p api.DeployPayload) int {
	n.t.Helper()
	all, _ := n.Observe(n.ctx)
	for _, r := range all {
		if r.DeploymentID == p.DeploymentID {
			return r.Instance.Restarts
		}
	}
	return 0
}

func instanceName(p api.DeployPayload) string {
	return "beckon-" + p.App + "-" + p.DeploymentID[len(p.DeploymentID)-8:]
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
	all, silent := n.Observe(n.ctx)
	if len(silent) > 0 {
		n.t.Fatal(silent)
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
