package bench

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

const (
	beating = 32 // nodes that send one heartbeat after the other
	warmUp  = 700 * time.Millisecond
	window  = 2 * time.Second
	rounds  = 2 // figure and limit take turns, so that both meet the same machine
)

// What a heartbeat costs the server, beside what a request costs that is not
// looked at: both have as many as they can take.
func BenchmarkHeartbeat(b *testing.B) {
	s := startServer(b)
	limit := startBare(b, s)
	nodes := s.join(b, beating)
	for _, version := range []struct {
		name  string
		http2 bool
	}{{"HTTP/1.1", false}, {"HTTP/2", true}} {
		b.Run(version.name, func(b *testing.B) {
			var real, least cost
			for range rounds {
				least.add(saturate(b, limit.process, limit.agents, nodes, version.http2))
				real.add(saturate(b, s.process, s.agents, nodes, version.http2))
			}
			figures.add(b, figure{
				name: "CPU for a heartbeat, " + version.name, unit: "µs", metric: "cpu-µs/heartbeat",
				value: real.each(), limit: least.each(), of: "a no-op handler behind the same mTLS",
			})
		})
	}
}

// cost is CPU time for so many calls.
type cost struct {
	cpu   time.Duration
	calls int64
}

func (c *cost) add(d cost) {
	c.cpu += d.cpu
	c.calls += d.calls
}

// each is in microseconds.
func (c cost) each() float64 { return float64(c.cpu) / float64(time.Microsecond) / float64(c.calls) }

// saturate has each node send heartbeats without a pause, and says what a
// window of them cost the process that answers.
func saturate(b *testing.B, p process, agents string, nodes []node, http2 bool) cost {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	hello, body := heartbeat(b, true), heartbeat(b, false)
	var done atomic.Int64
	var wg sync.WaitGroup
	failed := make(chan error, len(nodes))
	for _, n := range nodes {
		wg.Go(func() {
			if err := beat(ctx, n, agents, http2, hello, body, &done); err != nil && ctx.Err() == nil {
				failed <- err
				cancel()
			}
		})
	}
	pause(warmUp)
	cpu, calls := p.cpuTime(b), done.Load()
	pause(window)
	c := cost{p.cpuTime(b) - cpu, done.Load() - calls}
	cancel()
	wg.Wait()
	select {
	case err := <-failed:
		b.Fatalf("send heartbeats: %v", err)
	default:
	}
	return c
}

// beat says hello, and sends heartbeats until ctx ends.
func beat(ctx context.Context, n node, agents string, http2 bool, hello, body []byte, done *atomic.Int64) error {
	way := n.connect(agents, http2)
	defer way.close()
	if err := way.do(ctx, http.MethodPost, api.Heartbeat.Path, hello); err != nil {
		return err
	}
	c, err := n.dial(agents, http2, api.Heartbeat.Path, body)
	if err != nil {
		return err
	}
	defer c.close()
	for ; ctx.Err() == nil; done.Add(1) {
		if err := c.call(); err != nil {
			return err
		}
	}
	return nil
}
