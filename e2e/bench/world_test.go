package bench

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
	"github.com/beckon-fleet/beckon/api/seal"
	"github.com/beckon-fleet/beckon/e2e/kit/wait"
)

// atOnce is how many nodes join or connect side by side.
const atOnce = 16

// server is the real one, as a process with a folder and ports of its own.
type server struct {
	process
	data     string
	agents   string // https://host:port
	operator *client.Client
}

var tokenLine = regexp.MustCompile(`(?m)^operator token: (\S+)$`)

// startServer starts a server that is at its first start.
func startServer(b *testing.B, env ...string) *server {
	b.Helper()
	agents, operators := ports.Free(b), ports.Free(b)
	s := &server{data: filepath.Join(b.TempDir(), "data"), agents: "https://" + agents}
	s.process = start(b, true, "beckon", env, "server", "--data", s.data, "--agent-listen", agents, "--operator-listen", operators)
	header := http.Header{"Authorization": {"Bearer " + s.says(b, tokenLine)}}
	s.operator = client.New("http://"+operators, &http.Transport{MaxIdleConnsPerHost: 200}, header)
	wait.For(b, "the server", func() error {
		_, err := client.Call(b.Context(), s.operator, api.Readyz, api.HealthRequest{})
		return err
	})
	return s
}

// bare is the limit of a server.
type bare struct {
	process
	agents string // https://host:port
}

var listenLine = regexp.MustCompile(`(?m)^listening on (\S+)$`)

// startBare starts a bare server that shows the certificate of s.
func startBare(b *testing.B, s *server, env ...string) *bare {
	b.Helper()
	p := start(b, true, "limit", env, "-data", s.data)
	return &bare{p, "https://" + p.says(b, listenLine)}
}

// node has joined, and runs nothing.
type node struct {
	id   string
	pins []seal.Pin
	pair tls.Certificate
}

// token is for one more node; all of a benchmark are one machine.
func (s *server) token() (api.CreatedJoinToken, error) {
	return client.Call(context.Background(), s.operator, api.CreateJoinToken, api.CreateJoinTokenRequest{AllowMachineReuse: true})
}

// join has nodes join, side by side.
func (s *server) join(b *testing.B, count int) []node {
	b.Helper()
	nodes := make([]node, count)
	err := each(count, func(i int) (err error) {
		nodes[i], err = s.joinOne("idle-" + strconv.Itoa(i))
		return err
	})
	if err != nil {
		b.Fatalf("join nodes: %v", err)
	}
	return nodes
}

func (s *server) joinOne(hostname string) (n node, err error) {
	token, err := s.token()
	if err != nil {
		return n, err
	}
	pin, err := seal.ParsePin(token.CASHA256)
	if err != nil {
		return n, err
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return n, err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return n, err
	}
	n.pins = []seal.Pin{pin}
	way := n.connect(s.agents, true)
	defer way.close()
	res, err := client.Call(context.Background(), way.client, api.Join, api.JoinRequest{
		Token: token.Token, Hostname: hostname,
		CSR: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr})),
	})
	if err != nil {
		return n, err
	}
	certificate, err := seal.ParseCertificate(res.Certificate)
	if err != nil {
		return n, err
	}
	n.id, n.pair = res.NodeID, tls.Certificate{Certificate: [][]byte{certificate.Raw}, PrivateKey: key}
	return n, nil
}

// way is one connection of a node to a server, the real one or the bare one.
type way struct {
	client    *client.Client
	transport *http.Transport
}

// connect says the headers that an agent says. It dials at the first call.
func (n node) connect(agents string, http2 bool) *way {
	config := client.PinnedTLS(time.Now, n.pins...)
	if n.pair.PrivateKey != nil {
		config.Certificates = []tls.Certificate{n.pair}
	}
	t := &http.Transport{TLSClientConfig: config, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP2(http2)
	t.Protocols.SetHTTP1(!http2)
	header := http.Header{}
	header.Set(api.HeaderProtocol, strconv.Itoa(api.Protocol))
	header.Set(api.HeaderAgentVersion, "0.0.0-bench")
	header.Set(api.HeaderAgentInstance, api.Instance{Epoch: "bench", Starts: 1, Random: "one"}.String())
	header.Set("User-Agent", "beckon-agent/0.0.0-bench")
	header.Set("Content-Type", "application/json")
	return &way{client.New(agents, t, header), t}
}

func (w *way) close() { w.transport.CloseIdleConnections() }

// do makes a call and drops the answer, which both servers can give.
func (w *way) do(ctx context.Context, method, path string, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, method, w.client.Base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header = w.client.Header
	answer, err := w.client.HTTP.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s", method, path, answer.Status)
	}
	return nil
}

// listen opens the event stream and returns once it has carried something. It
// is read until ctx ends.
func (w *way) listen(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, api.Stream.Method, w.client.Base+api.Stream.Path, nil)
	if err != nil {
		return err
	}
	r.Header = w.client.Header
	answer, err := w.client.HTTP.Do(r)
	if err != nil {
		return err
	}
	var first [1]byte
	if _, err := io.ReadFull(answer.Body, first[:]); err != nil || answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		return errors.Join(fmt.Errorf("open stream: %s", answer.Status), err)
	}
	go func() {
		defer answer.Body.Close()
		io.Copy(io.Discard, answer.Body) // it ends with ctx
	}()
	return nil
}

// heartbeat is what an agent sends every ten seconds; the first one says hello.
func heartbeat(b *testing.B, hello bool) []byte {
	b.Helper()
	since := time.Now().UTC()
	req := api.HeartbeatRequest{
		CPUCores: 8, MemBytes: 32 << 30, DiskBytes: 512 << 30, N: 1,
		Self: &api.Self{RSSBytes: 14 << 20, Goroutines: 21}, Wake: &api.Wake{Rung: "stream", Since: &since},
		Applied: &api.Applied{Commands: since.UnixMilli()},
	}
	if hello {
		req.Hello = &api.Hello{
			BootID: "6d0f0f38-9b0c-4a5c-8a1e-3f2d1a0b9c8d", Hostname: "web-1", OS: "linux", Arch: "amd64", Kernel: "6.1.0-28-amd64",
			Release: &api.Release{Kind: "systemd"}, Runtimes: map[string]string{"docker": "28.2.2"},
		}
	}
	body, err := json.Marshal(req)
	if err != nil {
		b.Fatal(err)
	}
	return body
}

// each does do for 0 to count-1, some side by side.
func each(count int, do func(i int) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all error
	next := make(chan int)
	for range min(atOnce, count) {
		wg.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					mu.Lock()
					all = errors.Join(all, err)
					mu.Unlock()
				}
			}
		})
	}
	for i := range count {
		next <- i
	}
	close(next)
	wg.Wait()
	if all != nil {
		first, _, _ := strings.Cut(all.Error(), "\n")
		return errors.New(first)
	}
	return nil
}
