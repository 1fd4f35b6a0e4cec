package bench

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

// idle has nodes do what an idle agent does: a stream, and a heartbeat every
// ten seconds, on one connection. Call end.
func idle(b *testing.B, nodes []node, agents string) (end func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ways := connected(b, ctx, nodes, agents)
	body := heartbeat(b, false)
	var wg sync.WaitGroup
	for _, w := range ways {
		wg.Go(func() {
			next := time.NewTimer(rand.N(api.HeartbeatPace))
			defer next.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-next.C:
				}
				if err := w.do(ctx, http.MethodPost, api.Heartbeat.Path, body); err != nil && ctx.Err() == nil {
					b.Errorf("idle node: %v", err)
					return
				}
				next.Reset(api.HeartbeatPace)
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
		for _, w := range ways {
			w.close()
		}
	}
}

// connected has each node say hello and open its stream, on one connection.
func connected(b *testing.B, ctx context.Context, nodes []node, agents string) []*way {
	b.Helper()
	ways := make([]*way, len(nodes))
	body := heartbeat(b, true)
	err := each(len(nodes), func(i int) error {
		ways[i] = nodes[i].connect(agents, true)
		if err := ways[i].do(ctx, http.MethodPost, api.Heartbeat.Path, body); err != nil {
			return err
		}
		return ways[i].listen(ctx)
	})
	if err != nil {
		b.Fatalf("connect %d nodes: %v", len(nodes), err)
	}
	return ways
}
