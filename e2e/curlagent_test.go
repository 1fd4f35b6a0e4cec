package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/e2e/kit/cluster"
	"github.com/beckon-fleet/beckon/e2e/kit/need"
	"github.com/beckon-fleet/beckon/e2e/kit/proc"
	"github.com/beckon-fleet/beckon/e2e/kit/wait"
)

const (
	curlAgent     = "../scripts/curl-agent.sh"
	curlAgentHook = "testdata/curlagent/hook.sh"
)

// A protocol that takes more than this in bash has become too hard. Every line
// counts.
const curlAgentLines = 150

func TestCurlAgentIsShort(t *testing.T) {
	text, err := os.ReadFile(curlAgent)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n > curlAgentLines {
		t.Errorf("%s has %d lines, more than %d", curlAgent, n, curlAgentLines)
	}
	for n, line := range bytes.Split(text, []byte("\n")) {
		if len(line) > 120 {
			t.Errorf("line %d of %s has %d columns", n+1, curlAgent, len(line))
		}
	}
}

// script is a node whose agent is the script.
type script struct {
	t       *testing.T
	cluster *cluster.Cluster
	node    string // its id
	token   api.CreatedJoinToken
	state   string
	log     string // of the hook
	process *proc.Process
	starts  int
}

func newScript(t *testing.T) *script {
	t.Helper()
	needCurlAgent(t)
	s := &script{t: t, cluster: fixture(t, programs.Dir(t)), state: filepath.Join(t.TempDir(), "state")}
	s.log = filepath.Join(filepath.Dir(s.state), "hook.log")
	s.cluster.Start("")
	s.token = cluster.Must(s.cluster, api.CreateJoinToken, api.CreateJoinTokenRequest{Name: "bash-1"})
	s.node = s.token.NodeID
	return s
}

func needCurlAgent(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"bash", "curl", "openssl", "jq", "basenc"} {
		if _, err := exec.LookPath(tool); err != nil {
			need.Missing(t, tool+" is missing: install bash, curl, openssl, jq and coreutils")
		}
	}
}

// run starts the script, or, where more is given, bash with it.
func (s *script) run(more string, args ...string) *proc.Process {
	s.t.Helper()
	s.starts++
	path := curlAgent
	if more != "" {
		path, args = "bash", append([]string{"-c", `source "$1" && shift && ` + more, "sourced", curlAgent}, args...)
	}
	p, err := proc.Start(proc.Spec{
		Name: fmt.Sprintf("script-%d", s.starts), Logs: filepath.Dir(s.state), Path: path, Args: args,
		Env: proc.Environ("CURL_AGENT_HOOK="+curlAgentHook, "HOOK_LOG="+s.log),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.kill)
	s.process = p
	return p
}

// kill ends the script and what it runs beside itself, like a machine that
// loses its power.
func (s *script) kill() {
	s.process.Kill()
	for _, pid := range s.left() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
	}
	s.alone()
}

// alone waits until nothing of the script runs any more.
func (s *script) alone() {
	s.t.Helper()
	wait.For(s.t, "the end of what ran beside the script", func() error {
		if left := s.left(); len(left) > 0 {
			return fmt.Errorf("these still run: %v", left)
		}
		return nil
	})
}

// left is the processes with the state folder in their command line.
func (s *script) left() (pids []int) {
	s.t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, path := range all {
		text, _ := os.ReadFile(path) // it may have ended meanwhile
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && bytes.Contains(text, []byte(s.state)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// start starts the script and waits for a heartbeat.
func (s *script) start(more string, args ...string) {
	s.t.Helper()
	began := time.Now()
	p := s.run(more, args...)
	wait.For(s.t, "the script", func() error {
		if !p.Runs() {
			s.t.Fatalf("it has ended:\n%s", p.Err())
		}
		if n := s.now(); n.Presence != api.Online || n.Hello == nil || n.LastSeenAt.Before(began) {
			return fmt.Errorf("it is %s: %s", n.Presence, p.Err())
		}
		return nil
	})
}

func (s *script) now() api.Node {
	s.t.Helper()
	return cluster.Must(s.cluster, api.GetNode, api.NodeRequest{Node: s.node})
}

// send sends a command and waits for its end, or for a moment only.
func (s *script) send(kind string, seconds api.Wait) api.CommandStatus {
	s.t.Helper()
	return cluster.Must(s.cluster, api.SendCommand, api.SendCommandRequest{
		Write: api.Write{Wait: seconds}, Node: s.node, Kind: kind, Payload: []byte(`{"app_id":"app_1","app":"shop"}`),
	}).CommandStatus
}

// asked is what the hook was asked so far, and the process of the last time.
func (s *script) asked() (kinds []string, pid int) {
	s.t.Helper()
	text, err := os.ReadFile(s.log)
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kind, payload string
		if _, err := fmt.Sscan(line, &kind, &pid, &payload); err != nil || payload != `{"app_id":"app_1","app":"shop"}` {
			s.t.Errorf("the hook was asked %q (%v)", line, err)
		}
		kinds = append(kinds, kind)
	}
	return kinds, pid
}

// An agent can be written in bash: it joins, works, dies, comes back as the
// same node, and leaves.
func TestCurlAgent(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	address := s.token.URL
	wrong := strings.Repeat("0", 64)
	if code, err := s.run("", address, s.state, s.token.Token, wrong).Exit(wait.Long); code != 1 || !strings.Contains(s.process.Err(), "token was not sent") {
		t.Fatalf("with a wrong pin: exit code %d, %v\n%s", code, err, s.process.Err())
	}
	if token := cluster.Must(s.cluster, api.ListJoinTokens, api.ListJoinTokensRequest{}).Items[0]; token.State != api.TokenStateUnused {
		t.Fatalf("after the wrong pin the token is %s", token.State)
	}

	s.start("", address, s.state, s.token.Token, "SHA256 Fingerprint="+strings.ToUpper(s.token.CASHA256))
	if n := s.now(); n.Wake == nil || n.Wake.Rung != "long_poll" || n.CPUCores == 0 || n.MemBytes == 0 || n.DiskBytes == 0 {
		t.Errorf("joined: %+v", n)
	}
	c := s.send("stop", 60)
	if c.State != api.Succeeded || string(c.Result.Output) != `{"deployment_ids":[]}` {
		t.Errorf("stop is %s: %+v", c.State, c.Result)
	}
	if c := s.send("remove", 60); c.State != api.Failed || !strings.Contains(c.Result.Error, "there is no remove here") {
		t.Errorf("remove is %s: %+v", c.State, c.Result)
	}
	s.dieAtWork(address)
	if kinds, _ := s.asked(); strings.Join(kinds, " ") != "stop remove restart" {
		t.Errorf("the hook was asked %v", kinds)
	}
	s.private()

	if code, err := s.process.Stop(); err != nil || code != 0 {
		t.Fatalf("leave: exit code %d, %v\n%s", code, err, s.process.Err())
	}
	if n := s.now(); n.Status != api.StatusLeft {
		t.Errorf("after it left it is %s", n.Status)
	}
	if _, err := os.Stat(filepath.Join(s.state, "node.pem")); err == nil {
		t.Error("it has left, and keeps its identity")
	}
}

// dieAtWork kills the script while the hook works, and starts it again: the
// same node, which says that it cannot tell what came of the command.
func (s *script) dieAtWork(address string) {
	t := s.t
	t.Helper()
	sent := s.send("restart", 0)
	wait.For(t, "the hook", func() error {
		if kinds, _ := s.asked(); kinds[len(kinds)-1] != "restart" {
			return fmt.Errorf("it was asked %v", kinds)
		}
		return nil
	})
	s.process.Kill()
	_, pid := s.asked()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("end the hook: %v", err)
	}
	s.alone() // the heart does not beat on
	s.start("", "--leave", address, s.state)
	if said := s.process.Err(); !strings.Contains(said, "this is "+s.node+"\n") {
		t.Errorf("started again, it says\n%s", said)
	}
	wait.For(t, "the restart's end", func() error {
		c := cluster.Must(s.cluster, api.GetCommand, api.CommandRequest{ID: sent.ID})
		if !c.State.Ended() {
			return fmt.Errorf("it is %s", c.State)
		}
		if c.State != api.Lost || c.Result == nil || c.Result.Reason != "interrupted" {
			t.Fatalf("the restart is %s: %+v", c.State, c.Result)
		}
		return nil
	})
}

// private wants all of the state folder to be readable by its owner alone.
func (s *script) private() {
	s.t.Helper()
	err := filepath.WalkDir(s.state, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // what was temporary may be gone
		}
		if info, err := e.Info(); err == nil && info.Mode().Perm()&0o77 != 0 {
			s.t.Errorf("%s has the mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		s.t.Error(err)
	}
}

// A key is replaced while the node stays online, and a revoked node ends with
// 77 at once and at each start, until it joins anew.
func TestCurlAgentRenewsAndIsRevoked(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	// Each look at the certificate says that half of its life is over.
	always := `openssl() { if [[ $* == *-checkend* ]]; then return 1; fi; command openssl "$@"; }; main "$@"`
	s.start(always, s.token.URL, s.state, s.token.Token, s.token.CASHA256)
	first := s.identity()
	wait.For(t, "another key", func() error {
		if s.identity() == first {
			return fmt.Errorf("it is the same:\n%s", s.process.Err())
		}
		return nil
	})
	if c := s.send("stop", 60); c.State != api.Succeeded {
		t.Errorf("with the new key: stop is %s: %+v", c.State, c.Result)
	}

	cluster.Must(s.cluster, api.RevokeNode, api.RevokeNodeRequest{Node: s.node})
	if code, err := s.process.Exit(wait.Long); code != 77 {
		t.Fatalf("revoked: exit code %d, %v\n%s", code, err, s.process.Err())
	}
	if code, err := s.run("", s.token.URL, s.state).Exit(wait.Long); code != 77 {
		t.Errorf("started again: exit code %d, %v\n%s", code, err, s.process.Err())
	}
	s.token = cluster.Must(s.cluster, api.CreateJoinToken, api.CreateJoinTokenRequest{Name: "bash-2"})
	s.node = s.token.NodeID
	s.start("", s.token.URL, s.state, s.token.Token, s.token.CASHA256)
}

func (s *script) identity() string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.state, "node.pem"))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// sourced runs a few lines of bash with the functions of the script.
func sourced(t *testing.T, lines string, args ...string) (out []string) {
	t.Helper()
	needCurlAgent(t)
	c := exec.CommandContext(t.Context(), "bash", append([]string{"-c", `source "$1" && shift && ` + lines, "sourced", curlAgent}, args...)...)
	text, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}
