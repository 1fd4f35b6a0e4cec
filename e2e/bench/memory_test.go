package bench

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/beckon-fleet/beckon/api"
)

// beats is a minute of an idle node's heartbeats.
const beats = 6

// What a connected idle node takes of the server's memory, beside what it
// takes of a server that only opens streams. Both collect garbage often
// (GOGC=10), and each node has sent heartbeats, so that there was some: what
// is compared is what they keep, not what they have not thrown away yet.
func BenchmarkMemory(b *testing.B) {
	const often = "GOGC=10"
	s := startServer(b, often)
	limit := startBare(b, s, often)
	nodes := s.join(b, idleNodes(b))
	figures.add(b, figure{
		name: fmt.Sprintf("memory for an idle node, of %d", len(nodes)), unit: "KiB", metric: "rss-KiB/node",
		value: perNode(b, s.process, nodes, s.agents), limit: perNode(b, limit.process, nodes, limit.agents),
		of: "a bare event stream behind the same mTLS",
	})
}

// perNode is how much larger a process is with all nodes connected.
func perNode(b *testing.B, p process, nodes []node, agents string) float64 {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	without := p.settledMemory(b)
	ways := connected(b, ctx, nodes, agents)
	body := heartbeat(b, false)
	err := each(beats*len(ways), func(i int) error {
		return ways[i%len(ways)].do(ctx, http.MethodPost, api.Heartbeat.Path, body)
	})
	if err != nil {
		b.Fatalf("send heartbeats: %v", err)
	}
	with := p.settledMemory(b)
	cancel()
	for _, w := range ways {
		w.close()
	}
	return (with - without) / 1024 / float64(len(nodes))
}
