package bench

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
	"github.com/beckon-fleet/beckon/e2e/kit/wait"
	"go.etcd.io/bbolt"
)

const (
	wakes = 300 // commands, one after the other
	cold  = 20  // of them first, which are not counted
)

// How long it takes from an operator's POST until the real agent holds the
// command: it has fetched and verified it, has it on disk, and has the
// server's word that it may run. The limit is what the wire takes of that:
// three round trips (the command there and the nudge on, the fetch, the ack).
// The commits that are part of the way, three of the server and one of the
// agent, are not in the limit.
func BenchmarkWake(b *testing.B) {
	s := startServer(b)
	limit := startBare(b, s)
	way := s.join(b, 1)[0].connect(limit.agents, true)
	defer way.close()
	measure := func(b *testing.B, among string) {
		a := startAgent(b, s)
		sent, wire := a.wake(b, way)
		held := a.heldAfter(b, sent)
		var rows []figure
		for _, p := range []int{50, 99} {
			rows = append(rows, figure{
				name: fmt.Sprintf("POST to held, p%d, %s", p, among), unit: "ms", metric: fmt.Sprintf("p%d-ms", p),
				value: percentile(held, p), limit: percentile(wire, p), of: "3 round trips over the same TLS",
			})
		}
		figures.add(b, rows...)
	}
	b.Run("alone", func(b *testing.B) { measure(b, "one node") })
	b.Run("among", func(b *testing.B) {
		nodes := s.join(b, idleNodes(b))
		defer idle(b, nodes, s.agents)()
		measure(b, fmt.Sprintf("among %d idle", len(nodes)))
	})
}

// realAgent is the real agent, on a node without a container engine.
type realAgent struct {
	process
	server *server
	id     string
	state  string
}

func startAgent(b *testing.B, s *server) realAgent {
	b.Helper()
	token, err := s.token()
	if err != nil {
		b.Fatal(err)
	}
	a := realAgent{server: s, id: token.NodeID, state: filepath.Join(b.TempDir(), "agent")}
	a.process = start(b, false, "beckon-agent", nil, "join", "--url", s.agents, "--token", token.Token, "--ca-sha256", token.CASHA256,
		"--state", a.state, "--docker", "unix://"+filepath.Join(b.TempDir(), "no-engine.sock"))
	wait.For(b, "the agent", func() error {
		now, err := client.Call(b.Context(), s.operator, api.GetNode, api.NodeRequest{Node: a.id})
		if err == nil && (now.Wake == nil || now.Wake.Rung != "stream") {
			err = fmt.Errorf("its stream is not known: %+v", now.Wake)
		}
		return err
	})
	return a
}

// wake sends commands, each when the one before has ended, and says when. In
// between it takes the same way over the bare wire, and says how long that took.
func (a realAgent) wake(b *testing.B, w *way) (sent map[string]time.Time, wire []time.Duration) {
	b.Helper()
	sent = map[string]time.Time{}
	for i := range cold + wakes {
		breathe()
		took := roundTrips(b, w)
		breathe()
		at := time.Now()
		res, err := client.Call(b.Context(), a.server.operator, api.SendCommand, stopCommand(a.id))
		if err != nil || !res.State.Ended() {
			b.Fatalf("send command: it is %s, %v", res.State, err)
		}
		if i >= cold {
			sent[res.ID] = at
			wire = append(wire, took)
		}
	}
	return sent, wire
}

func roundTrips(b *testing.B, w *way) time.Duration {
	b.Helper()
	began := time.Now()
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodPost} {
		if err := w.do(b.Context(), method, api.Commands.Path, nil); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(began)
}

// breathe lets both sides fall asleep, and never for the same time.
func breathe() { pause(10*time.Millisecond + rand.N(10*time.Millisecond)) }

// stopCommand stops an app that is not there: the command that does least.
func stopCommand(node string) api.SendCommandRequest {
	return api.SendCommandRequest{
		Write: api.Write{Wait: 30}, Node: node, Kind: api.Stop.Name(), Payload: json.RawMessage(`{"app_id": "app_bench", "app": "bench"}`),
	}
}

// heldAfter stops the agent and reads in its journal when it had the permit
// for each command. Both moments are of this machine's clock.
func (a realAgent) heldAfter(b *testing.B, sent map[string]time.Time) (taken []time.Duration) {
	b.Helper()
	if _, err := a.Stop(); err != nil {
		b.Fatal(err)
	}
	db, err := bbolt.Open(filepath.Join(a.state, "journal.db"), 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("entries")).ForEach(func(_, text []byte) error {
			var e struct {
				ID         string    `json:"id"`
				AcceptedAt time.Time `json:"accepted_at"`
			}
			if err := json.Unmarshal(text, &e); err != nil {
				return err
			}
			if at, ours := sent[e.ID]; ours && !e.AcceptedAt.IsZero() {
				taken = append(taken, e.AcceptedAt.Sub(at))
			}
			return nil
		})
	})
	if err != nil || len(taken) != len(sent) {
		b.Fatalf("the journal holds %d of %d commands, %v", len(taken), len(sent), err)
	}
	return taken
}

// percentile is in milliseconds.
func percentile(taken []time.Duration, p int) float64 {
	sorted := slices.Sorted(slices.Values(taken))
	return float64(sorted[(len(sorted)-1)*p/100]) / float64(time.Millisecond)
}
