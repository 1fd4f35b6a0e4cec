package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/agent"
	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
	"github.com/beckon-fleet/beckon/api/seal"
	"github.com/beckon-fleet/beckon/e2e/kit/wait"
	"github.com/beckon-fleet/beckon/server"
)

// identity is what a test reads of a node's state folder, to speak for it.
type identity struct {
	Key         string   `json:"key"`
	Certificate string   `json:"certificate"`
	CAs         []string `json:"cas"`
	Server      string   `json:"server"`
}

func readIdentity(t testing.TB, state string) (id identity) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(state, "identity-*.json"))
	if err != nil || len(names) != 1 {
		t.Fatalf("%d identities in %s, %v", len(names), state, err)
	}
	text, err := os.ReadFile(names[0])
	if err == nil {
		err = json.Unmarshal(text, &id)
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func nodeTLS(t testing.TB, state string) *tls.Config {
	t.Helper()
	id := readIdentity(t, state)
	ca, err := seal.ParseCertificate(id.CAs[0])
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair([]byte(id.Certificate), []byte(id.Key))
	if err != nil {
		t.Fatal(err)
	}
	config := client.PinnedTLS(time.Now, seal.PinOf(ca))
	config.Certificates = []tls.Certificate{pair}
	return config
}

// footprint is what a process holds.
type footprint struct {
	goroutines, files int
	heap              uint64
}

func measure(t testing.TB) (f footprint) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("there is no /proc/self/fd here to count open files in")
	}
	runtime.GC()
	runtime.GC() // finalizers have run
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{runtime.NumGoroutine(), len(entries), m.HeapAlloc}
}

// backTo waits until the process holds no more than before, but for what comes
// and goes by itself (the database opens up to eight readers, of three files
// each) and for slack bytes. A hundred leaks are more.
func (f footprint) backTo(t testing.TB, slack uint64) {
	t.Helper()
	wait.For(t, "goroutines, files and memory to be given back", func() error {
		now := measure(t)
		if now.goroutines > f.goroutines+10 || now.files > f.files+24 || now.heap > f.heap+slack {
			return fmt.Errorf("%+v before, %+v now", f, now)
		}
		return nil
	})
}

// plane is a server in this process, on real sockets.
type plane struct {
	server     *server.Server
	url, token string
	operators  *http.Transport
}

func newPlane(t *testing.T) *plane {
	t.Helper()
	agents, operators := loopback(t), loopback(t)
	s, err := server.New(t.Context(), server.Config{
		Data: filepath.Join(t.TempDir(), "server"), AgentURL: "https://" + agents.Addr().String(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{server: s, url: "http://" + operators.Addr().String(), operators: &http.Transport{}}
	if p.token, err = s.FirstToken(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx, server.Listeners{Agents: agents, Operators: operators}) }()
	t.Cleanup(func() {
		p.operators.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the server ended with %v", err)
		}
	})
	return p
}

func loopback(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// join makes a node, whose requests wrap sees.
func (p *plane) join(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) agent.Config {
	t.Helper()
	header := http.Header{"Authorization": {"Bearer " + p.token}}
	token, err := client.Call(t.Context(), client.New(p.url, p.operators, header), api.CreateJoinToken, api.CreateJoinTokenRequest{AllowMachineReuse: true})
	if err != nil {
		t.Fatal(err)
	}
	cfg := agent.Config{
		State: filepath.Join(t.TempDir(), "state"), Docker: "unix://" + filepath.Join(t.TempDir(), "no-engine.sock"),
		Log: slog.New(slog.DiscardHandler), Wrap: wrap,
	}
	if _, err := agent.Join(t.Context(), cfg, agent.JoinOptions{URL: token.URL, Token: token.Token, Pin: token.CASHA256}); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// Nothing is left of 200 streams, over HTTP/1.1 and HTTP/2, on either side.
func TestStreamsLeaveNothing(t *testing.T) {
	p := newPlane(t)
	cfg := p.join(t, nil)
	cycle := func(http2 bool) {
		far := &http.Transport{TLSClientConfig: nodeTLS(t, cfg.State), ForceAttemptHTTP2: http2, IdleConnTimeout: time.Second}
		events, hangUp := readStream(t, far, readIdentity(t, cfg.State).Server)
		if first := <-events; !strings.Contains(first, "commands") {
			t.Fatalf("the stream began with %q", first)
		}
		hangUp()
	}
	for range 10 {
		cycle(false)
		cycle(true)
	}
	before := measure(t)
	for range 100 {
		cycle(false)
		cycle(true)
	}
	before.backTo(t, 2<<20)
}

// Nothing is left of 100 machines that joined and left, on either side, nor of
// the agents that some of them ran.
func TestJoinsAndLeavesLeaveNothing(t *testing.T) {
	p := newPlane(t)
	cycle := func(runs bool) {
		beats := make(chan struct{}, 100)
		cfg := p.join(t, func(next http.RoundTripper) http.RoundTripper { return told{next, beats} })
		if runs {
			runUntil(t, cfg, beats)
		}
		if _, err := agent.Leave(t.Context(), cfg, false); err != nil {
			t.Error(err)
		}
	}
	for range 5 {
		cycle(true)
	}
	before := measure(t)
	for i := range 100 {
		cycle(i%4 == 0)
	}
	before.backTo(t, 12<<20) // the timers of a dead HTTP/2 connection keep its 80 KiB for half a minute
}

// runUntil runs an agent until something is heard.
func runUntil(t *testing.T, cfg agent.Config, heard <-chan struct{}) {
	t.Helper()
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()
	select {
	case <-heard:
	case <-time.After(wait.Long):
		t.Error("the agent does not beat")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// told tells of each answered heartbeat.
type told struct {
	next  http.RoundTripper
	beats chan struct{}
}

func (o told) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := o.next.RoundTrip(r)
	if err == nil && r.URL.Path == api.Heartbeat.Path {
		o.beats <- struct{}{}
	}
	return answer, err
}

// nodeTransport speaks for a node as its agent would.
func nodeTransport(t *testing.T, cfg agent.Config) *http.Transport {
	t.Helper()
	config := nodeTLS(t, cfg.State)
	return &http.Transport{DialContext: cfg.Dial, TLSClientConfig: config, ForceAttemptHTTP2: true}
}

// readStream reads the data of a stream's events, until it ends.
func readStream(t *testing.T, far *http.Transport, server string) (events chan string, hangUp func()) {
	t.Helper()
	ctx, hangUp := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", server+api.Stream.Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := far.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		text, err := io.ReadAll(answer.Body)
		t.Fatalf("the stream is answered with %d, %s, %v", answer.StatusCode, text, err)
	}
	events = make(chan string, 2000)
	go func() {
		defer close(events)
		defer answer.Body.Close()
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				events <- data
			}
		}
	}()
	return events, hangUp
}
