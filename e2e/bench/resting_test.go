package bench

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// idleFor holds three heartbeats and one look at what runs.
const idleFor = 30 * time.Second

// What an agent takes of its machine while it has nothing to do, beside a
// program that holds a TLS connection and nothing else.
func BenchmarkIdleAgent(b *testing.B) {
	s := startServer(b)
	a := startAgent(b, s)
	h := startHold(b, s)
	a.settledMemory(b)
	agent, hold := a.cpuTime(b), h.cpuTime(b)
	pause(idleFor)
	perMinute := func(used time.Duration) float64 { return float64(used) / float64(time.Millisecond) / idleFor.Minutes() }
	const of = "a program that holds one TLS connection"
	figures.add(b,
		figure{
			name: "memory of an idle agent", unit: "MiB", metric: "rss-MiB", of: of,
			value: a.memory(b) / (1 << 20), limit: h.memory(b) / (1 << 20),
		},
		figure{
			name: "CPU of an idle agent, a minute", unit: "ms", metric: "cpu-ms/min", of: of,
			value: perMinute(a.cpuTime(b) - agent), limit: perMinute(h.cpuTime(b) - hold),
		})
}

var connectLine = regexp.MustCompile(`(?m)^connected to (\S+)$`)

// startHold starts the program that only holds a connection, and what it is
// connected to.
func startHold(b *testing.B, s *server) process {
	b.Helper()
	on, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{s.certificate(b)}})
	if err != nil {
		b.Fatal(err)
	}
	accepted := make(chan net.Conn, 1)
	go func() {
		defer close(accepted)
		conn, err := on.Accept()
		if err != nil {
			return
		}
		accepted <- conn
		io.Copy(io.Discard, conn) // the handshake, and until one side ends it
	}()
	b.Cleanup(func() {
		on.Close()
		if conn := <-accepted; conn != nil {
			conn.Close()
		}
	})
	p := start(b, false, "hold", nil, "-to", on.Addr().String(), "-ca", filepath.Join(s.data, "ca.crt"))
	p.says(b, connectLine)
	return p
}

// certificate is the server's own.
func (s *server) certificate(b *testing.B) tls.Certificate {
	b.Helper()
	file := filepath.Join(s.data, "server.pem")
	pair, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		b.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(s.data, "ca.crt"))
	if err != nil {
		b.Fatal(err)
	}
	if ca, _ := pem.Decode(text); ca != nil {
		pair.Certificate = append(pair.Certificate, ca.Bytes)
	}
	return pair
}
