// Package cluster runs a server and its agents as processes, over loopback
// and in folders that go with the test.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
	"github.com/beckon-fleet/beckon/e2e/kit/proc"
	"github.com/beckon-fleet/beckon/e2e/kit/wait"
)

// Config says what a cluster is made of.
type Config struct {
	Programs  string // folder of the programs
	Data      string // of the server; a temporary one unless said
	Agents    string // where agents come in, as 127.0.0.1:8443
	Operators string // where operators come in
}

// Cluster is a server that can be killed and started again.
type Cluster struct {
	Config
	URL     string // for operators
	Token   string // of an operator
	Process *proc.Process

	t         testing.TB
	logs      string
	starts    int
	transport *http.Transport
}

// New makes a cluster whose server does not run yet.
func New(t testing.TB, c Config) *Cluster {
	t.Helper()
	if c.Data == "" {
		c.Data = filepath.Join(t.TempDir(), "data")
	}
	s := &Cluster{Config: c, URL: "http://" + c.Operators, t: t, logs: t.TempDir(), transport: &http.Transport{}}
	t.Cleanup(func() {
		s.Stop()
		s.transport.CloseIdleConnections()
	})
	return s
}

var tokenLine = regexp.MustCompile(`(?m)^operator token: (\S+)$`)

// Start starts the server and waits until it is ready. fault names the point
// of a command's life at which it is to die, or is "".
func (s *Cluster) Start(fault string) {
	s.t.Helper()
	p := s.run(fault)
	wait.For(s.t, "the server", func() error {
		if !p.Runs() {
			s.t.Fatalf("the server has ended:\n%s", p.Err())
		}
		_, err := Call(s, api.Readyz, api.HealthRequest{})
		return err
	})
	if m := tokenLine.FindStringSubmatch(p.Out()); m != nil {
		s.Token = m[1]
	}
}

// Fails starts a server that is to end by itself.
func (s *Cluster) Fails() (code int, said string) {
	s.t.Helper()
	code, err := s.run("").Exit(wait.Long)
	if err != nil {
		s.t.Fatal(err)
	}
	return code, s.Process.Err()
}

func (s *Cluster) run(fault string) *proc.Process {
	s.t.Helper()
	s.starts++
	p, err := proc.Start(proc.Spec{
		Name: fmt.Sprintf("server-%d", s.starts), Logs: s.logs, Path: filepath.Join(s.Programs, "beckon"),
		Args: []string{"server", "--data", s.Data, "--agent-listen", s.Agents, "--operator-listen", s.Operators},
		Env:  proc.Environ("BECKON_FAULT=" + fault),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.Process = p
	return p
}

// Stop ends the server in good order, if it runs.
func (s *Cluster) Stop() {
	s.t.Helper()
	if s.Process == nil || !s.Process.Runs() {
		return
	}
	if code, err := s.Process.Stop(); err != nil || code != 0 {
		s.t.Errorf("the server ended with exit code %d, %v:\n%s", code, err, s.Process.Err())
	}
}

// Logs is what all starts of the server and of the agents have written so far.
func (s *Cluster) Logs() string {
	var all strings.Builder
	files, err := filepath.Glob(filepath.Join(s.logs, "*.err"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			s.t.Fatal(err)
		}
		fmt.Fprintf(&all, "== %s\n%s", filepath.Base(file), text)
	}
	return all.String()
}

// Call makes one call of an operator.
func Call[Req, Res any](s *Cluster, e api.Endpoint[Req, Res], req Req) (Res, error) {
	header := http.Header{"Authorization": {"Bearer " + s.Token}}
	return client.Call(context.Background(), client.New(s.URL, s.transport, header), e, req)
}

// Must is Call where only an answer will do.
func Must[Req, Res any](s *Cluster, e api.Endpoint[Req, Res], req Req) Res {
	s.t.Helper()
	res, err := Call(s, e, req)
	if err != nil {
		s.t.Fatalf("%s %s: %v", e.Method, e.Path, err)
	}
	return res
}

// Node is a node of the cluster, whose agent can be killed and started again.
type Node struct {
	ID, Name, State string
	Process         *proc.Process

	cluster *Cluster
	starts  int
}

// Join makes a node of this machine. Its agent does not run yet.
func (s *Cluster) Join(name string) *Node {
	s.t.Helper()
	// All nodes of a test are one machine.
	token := Must(s, api.CreateJoinToken, api.CreateJoinTokenRequest{Name: name, AllowMachineReuse: true})
	n := &Node{ID: token.NodeID, Name: name, State: filepath.Join(s.t.TempDir(), name), cluster: s}
	code, err := n.run("join", "", "join", "--only", "--url", token.URL, "--token", token.Token, "--ca-sha256", token.CASHA256).Exit(wait.Long)
	if err != nil || code != 0 {
		s.t.Fatalf("join: exit code %d, %v\n%s", code, err, n.Process.Err())
	}
	return n
}

// Start starts the agent and waits until it is online. fault names the point
// of a command's life at which it is to die, or is "".
func (n *Node) Start(fault string) {
	n.cluster.t.Helper()
	n.starts++
	p := n.run(fmt.Sprintf("agent-%d", n.starts), fault, "run")
	wait.For(n.cluster.t, "the agent", func() error {
		if !p.Runs() {
			return nil // a fault may come at once
		}
		now, err := Call(n.cluster, api.GetNode, api.NodeRequest{Node: n.ID})
		if err == nil && (now.Presence != api.Online || now.Hello == nil) {
			err = errors.New("it is " + string(now.Presence))
		}
		return err
	})
}

func (n *Node) run(log, fault string, args ...string) *proc.Process {
	t := n.cluster.t
	t.Helper()
	p, err := proc.Start(proc.Spec{
		Name: n.Name + "-" + log, Logs: n.cluster.logs, Path: filepath.Join(n.cluster.Programs, "beckon-agent"),
		Args: append(args, "--state", n.State), Env: proc.Environ("BECKON_FAULT=" + fault),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	n.Process = p
	return p
}
