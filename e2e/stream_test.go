package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/agent"
	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/e2e/kit/cluster"
	"github.com/beckon-fleet/beckon/e2e/kit/need"
	"github.com/beckon-fleet/beckon/e2e/kit/proc"
	"github.com/beckon-fleet/beckon/e2e/kit/wait"
	sse "github.com/tmaxmax/go-sse"
)

// nudged queues a command, which every stream of the node tells of.
func nudged(c *cluster.Cluster, node string) {
	cluster.Must(c, api.SendCommand, api.SendCommandRequest{
		Node: node, Kind: "stop", Payload: []byte(`{"app_id": "app_1", "app": "web"}`),
	})
}

// peer is a program or a library that reads a node's stream.
type peer interface {
	// read returns what was read so far, an event a line, and whether the
	// stream has ended.
	read() (events string, ended bool)
}

// reads holds a peer against what a stream says in its life.
func reads(t *testing.T, c *cluster.Cluster, node string, p peer) {
	t.Helper()
	expect := func(what, want string, end bool) {
		t.Helper()
		wait.For(t, what, func() error {
			events, ended := p.read()
			if !strings.HasSuffix(events, want) || ended != end {
				return fmt.Errorf("it has read %q, ended %v; want %q at the end", events, ended, want)
			}
			return nil
		})
	}
	expect("the first event", "cursors {\"trust\":1,\"commands\":0}\n", false)
	nudged(c, node)
	expect("the event of a command", "cursors {\"trust\":1,\"commands\":1}\n", false)
	cluster.Must(c, api.RevokeNode, api.RevokeNodeRequest{Node: node})
	expect("the end", "revoked {}\n", true)
}

// curl reads a stream as a person would.
type curl struct{ *proc.Process }

func (p curl) read() (events string, ended bool) {
	ended = !p.Runs()
	for block := range strings.SplitSeq(p.Out(), "\n\n") {
		name, data := "", ""
		for line := range strings.Lines(block) {
			if s, ok := strings.CutPrefix(line, "event: "); ok {
				name = strings.TrimSpace(s)
			}
			if s, ok := strings.CutPrefix(line, "data: "); ok {
				data = strings.TrimSpace(s)
			}
		}
		if name != "" {
			events += name + " " + data + "\n"
		}
	}
	return events, ended
}

func TestCurlReadsTheStream(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("curl")
	if err != nil {
		need.Missing(t, "curl is missing; install it")
	}
	c := fixture(t, programs.Dir(t))
	c.Start("")
	_, port, err := net.SplitHostPort(c.Agents)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"--http1.1", "--http2"} {
		node := c.Join("web" + strings.NewReplacer("-", "", ".", "").Replace(version))
		id, dir := readIdentity(t, node.State), t.TempDir()
		for name, text := range map[string]string{"key.pem": id.Key, "cert.pem": id.Certificate, "ca.pem": id.CAs[0]} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p, err := proc.Start(proc.Spec{
			Name: "curl", Logs: dir, Dir: dir, Path: path, Env: proc.Environ(),
			Args: []string{
				"--no-buffer", "--silent", "--show-error", "--fail", version, "--key", "key.pem", "--cert", "cert.pem", "--cacert", "ca.pem",
				"--connect-to", "::127.0.0.1:" + port, "https://" + api.ServerName + ":" + port + api.Stream.Path,
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		reads(t, c, node.Name, curl{p})
		if code, err := p.Exit(wait.Long); code != 0 || err != nil {
			t.Errorf("curl %s ended with %d, %v: %s", version, code, err, p.Err())
		}
	}
}

// library reads a stream with a client that shares no code with ours.
type library struct {
	events chan string
	ended  chan error
	seen   *strings.Builder
}

func (l library) read() (events string, ended bool) {
	select {
	case err := <-l.ended:
		l.ended <- err
		ended = true
	default:
	}
	for {
		select {
		case e := <-l.events:
			l.seen.WriteString(e)
		default:
			return l.seen.String(), ended
		}
	}
}

func TestAnotherLibraryReadsTheStream(t *testing.T) {
	t.Parallel()
	c := fixture(t, programs.Dir(t))
	c.Start("")
	for _, http2 := range []bool{false, true} {
		node := c.Join(map[bool]string{false: "web-1", true: "web-2"}[http2])
		far := &http.Transport{TLSClientConfig: nodeTLS(t, node.State), ForceAttemptHTTP2: http2}
		defer far.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, "GET", "https://"+c.Agents+api.Stream.Path, nil)
		if err != nil {
			t.Fatal(err)
		}
		once := sse.Client{HTTPClient: &http.Client{Transport: far}, Backoff: sse.Backoff{MaxRetries: -1}}
		connection := once.NewConnection(r)
		l := library{events: make(chan string, 100), ended: make(chan error, 1), seen: &strings.Builder{}}
		connection.SubscribeToAll(func(e sse.Event) { l.events <- e.Type + " " + e.Data + "\n" })
		go func() { l.ended <- connection.Connect() }()
		reads(t, c, node.Name, l)
		if err := <-l.ended; errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
}

// A server that is told to end does so in order, however many streams are open.
func TestServerEndsWithOpenStreams(t *testing.T) {
	t.Parallel()
	c := fixture(t, programs.Dir(t))
	c.Start("")
	streams := make([]chan string, fleetSize()/5)
	var all sync.WaitGroup
	for first := range 8 {
		all.Go(func() {
			for i := first; i < len(streams); i += 8 {
				token := cluster.Must(c, api.CreateJoinToken, api.CreateJoinTokenRequest{AllowMachineReuse: true})
				cfg := agent.Config{State: filepath.Join(t.TempDir(), "state"), Log: slog.New(slog.DiscardHandler)}
				o := agent.JoinOptions{URL: "https://" + c.Agents, Token: token.Token, Pin: token.CASHA256}
				if _, err := agent.Join(t.Context(), cfg, o); err != nil {
					t.Error(err)
					return
				}
				far := &http.Transport{TLSClientConfig: nodeTLS(t, cfg.State), ForceAttemptHTTP2: i%2 == 0}
				t.Cleanup(far.CloseIdleConnections)
				streams[i], _ = readStream(t, far, "https://"+c.Agents)
				<-streams[i]
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	began := time.Now()
	code, err := c.Process.Stop()
	if took := time.Since(began); code != 0 || err != nil || took >= 5*time.Second {
		t.Errorf("with %d streams it ended after %v with %d, %v: %s", len(streams), took, code, err, c.Process.Err())
	}
	for _, s := range streams {
		for data := range s {
			t.Errorf("a stream ended with %s", data)
		}
	}
}
