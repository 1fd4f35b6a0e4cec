package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
)

// asking is how many operators ask something of as many nodes at once.
const asking = 64

// How many commands a second go all the way, each step of it durable before
// it is answered: sent by an operator, delivered, acked, ended by a result.
// The limit writes the same rows into the same schema on the same disk, many
// callers to a commit, and does nothing else; it has one CPU, too.
func BenchmarkQueue(b *testing.B) {
	s := startServer(b)
	nodes := s.join(b, asking)
	ways := make([]*way, asking)
	for i, n := range nodes {
		ways[i] = n.connect(s.agents, true)
		defer ways[i].close()
	}
	disk := openCommits(b)
	var real, least lives
	for range rounds {
		least.add(many(b, ownCPUTime, disk.live))
		real.add(many(b, s.cpuTime, func(ctx context.Context, i int) error { return s.live(ctx, nodes[i].id, ways[i]) }))
	}
	const of = "the same rows, grouped commits, SQLite alone"
	figures.add(b,
		figure{
			name: "durable commands: sent, acked, ended", unit: "/s", metric: "commands/s", rate: true, of: of,
			value: real.perSecond(), limit: least.perSecond(),
		},
		figure{name: "CPU for such a command", unit: "µs", metric: "cpu-µs/command", of: of, value: real.each(), limit: least.each()})
}

// lives is how many commands went all the way, and what that took.
type lives struct {
	cost
	took time.Duration
}

func (l *lives) add(d lives) {
	l.cost.add(d.cost)
	l.took += d.took
}

func (l lives) perSecond() float64 { return float64(l.calls) / l.took.Seconds() }

// many has as many callers as there are nodes do one life after the other.
func many(b *testing.B, used func(*testing.B) time.Duration, live func(ctx context.Context, i int) error) lives {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var done atomic.Int64
	var wg sync.WaitGroup
	failed := make(chan error, asking)
	for i := range asking {
		wg.Go(func() {
			var err error
			for ; err == nil && ctx.Err() == nil; done.Add(1) {
				err = live(ctx, i)
			}
			if ctx.Err() == nil {
				failed <- err
				cancel()
			}
		})
	}
	pause(warmUp)
	began, cpu, calls := time.Now(), used(b), done.Load()
	pause(window)
	l := lives{cost{used(b) - cpu, done.Load() - calls}, time.Since(began)}
	cancel()
	wg.Wait()
	select {
	case err := <-failed:
		b.Fatalf("take a command through its life: %v", err)
	default:
	}
	return l
}

// live takes one command through its life: as an operator, and as the node's
// agent. What is left of one that was cut off before is not taken for it.
func (s *server) live(ctx context.Context, node string, w *way) error {
	req := stopCommand(node)
	req.Wait = 0
	sent, err := client.Call(ctx, s.operator, api.SendCommand, req)
	if err != nil {
		return err
	}
	queue, err := client.Call(ctx, w.client, api.Commands, api.CommandsRequest{After: sent.Seq - 1})
	if err != nil {
		return err
	}
	if len(queue.Commands) != 1 {
		return fmt.Errorf("the queue holds %d commands, not one", len(queue.Commands))
	}
	var item api.CommandItem
	var c api.Command
	if err := json.Unmarshal(queue.Commands[0], &item); err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(item.Data), &c); err != nil {
		return err
	}
	if _, err := client.Call(ctx, w.client, api.Ack, api.AckRequest{ID: c.ID}); err != nil {
		return err
	}
	_, err = client.Call(ctx, w.client, api.PostResult, api.ResultRequest{ID: c.ID, Result: result()})
	return err
}

// result is what an agent says of a command that stopped an app.
func result() api.Result {
	now := time.Now().UTC()
	return api.Result{Status: api.OutcomeSucceeded, Output: json.RawMessage(`{"deployment_ids":[]}`), StartedAt: &now, FinishedAt: &now, Attempt: 1}
}
