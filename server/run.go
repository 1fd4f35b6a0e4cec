package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"
)

// Listeners are where the server is reached.
type Listeners struct {
	Agents       net.Listener
	Operators    net.Listener
	OperatorsTLS bool // with the cluster's certificate, which BECKON_CA_SHA256 pins
}

// grace is how long requests that are under way may take at the end. Connections
// on which nothing was ever asked would hold net/http for five seconds.
const grace = 3 * time.Second

// Run answers agents and operators until ctx ends, and waits for all it began.
// Waiting calls are answered at once with what they have.
func (s *Server) Run(ctx context.Context, on Listeners) error {
	defer s.Close()
	agents, operators := s.http(s.agentRoutes()), s.http(s.operatorRoutes())
	agents.TLSConfig = s.tls(tls.RequestClientCert) // judged in identify
	if on.OperatorsTLS {
		operators.TLSConfig = s.tls(tls.NoClientCert)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	failed := make(chan error, 2)
	wg.Go(func() { failed <- agents.ServeTLS(on.Agents, "", "") })
	wg.Go(func() {
		if on.OperatorsTLS {
			failed <- operators.ServeTLS(on.Operators, "", "")
			return
		}
		failed <- operators.Serve(on.Operators)
	})
	wg.Go(func() { s.hub.Streams.Run(ctx) })
	s.jobs(ctx, &wg)

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel()
	close(s.stopping)
	s.hub.Close()
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer done()
	err = errors.Join(err, stop(closing, agents), stop(closing, operators))
	wg.Wait()
	if flushErr := s.nodes.Flush(closing); flushErr != nil {
		s.cfg.Log.Warn("last heartbeats not stored", "err", flushErr)
	}
	return err
}

// stop ends a web server: politely, then not.
func stop(ctx context.Context, w *http.Server) error {
	err := w.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = w.Close()
	}
	return err
}

// jobs are what is done from time to time. Each is idempotent; a failure is
// logged and tried again.
func (s *Server) jobs(ctx context.Context, wg *sync.WaitGroup) {
	for _, job := range []struct {
		name string
		pace time.Duration
		do   func(context.Context) error
	}{
		{"flush heartbeats", s.cfg.Pace.Flush, s.nodes.Flush},
		{"sweep nodes", s.cfg.Pace.Sweep, s.nodes.Sweep},
		{"expire commands", s.cfg.Pace.Sweep, s.commands.Expire},
		{"forget idempotency keys", time.Hour, s.once.Sweep},
		{"sweep files", time.Hour, s.files.Sweep},
	} {
		wg.Go(func() {
			tick := time.NewTicker(job.pace)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				if err := job.do(ctx); err != nil && ctx.Err() == nil {
					s.cfg.Log.Error("job failed; it is tried again", "job", job.name, "err", err)
				}
			}
		})
	}
}

func (s *Server) http(h http.Handler) *http.Server {
	w := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second, // the rest has a deadline for each body and answer, in rest
		IdleTimeout:       120 * time.Second,
		MaxHeaderBytes:    32 << 10,
		HTTP2:             &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	if !http2Sound(runtime.Version()) {
		w.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
		w.Protocols = new(http.Protocols)
		w.Protocols.SetHTTP1(true)
		s.cfg.Log.Warn("HTTP/2 is off: this binary was built with a Go whose HTTP/2 server can be crashed from outside", "go", runtime.Version())
	}
	return w
}

func (s *Server) tls(client tls.ClientAuthType) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ClientAuth: client,
		Time:       s.cfg.Clock,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.authority.ServerCertificate()
		},
	}
}
