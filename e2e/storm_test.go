package e2e

import (
	"context"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/beckon-fleet/beckon/agent"
	"github.com/beckon-fleet/beckon/api"
)

// tally is what the agents of a fleet are answered.
type tally struct {
	mu    sync.Mutex
	began time.Time
	all   []int                 // answers in each second
	calls map[string]int        // by path
	back  map[int]time.Duration // until the first heartbeat of each agent
}

func (y *tally) reset() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.began, y.all, y.calls, y.back = time.Now(), nil, map[string]int{}, map[int]time.Duration{}
}

// counted is one agent's way to the server. What cannot be dialled reaches
// nobody, and is not counted.
type counted struct {
	tally *tally
	agent int
	next  http.RoundTripper
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := c.next.RoundTrip(r)
	if err == nil {
		c.tally.count(c.agent, r.URL.Path)
	}
	return answer, err
}

func (y *tally) count(agent int, path string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	after := time.Since(y.began)
	for len(y.all) <= int(after/time.Second) {
		y.all = append(y.all, 0)
	}
	y.all[int(after/time.Second)]++
	y.calls[path]++
	if _, ok := y.back[agent]; !ok && path == api.Heartbeat.Path {
		y.back[agent] = after
	}
}

// returned is how many agents have come back, when the last of them did, and
// the greatest number of answers in a second until then beside their mean.
func (y *tally) returned() (n int, last time.Duration, peak int, mean float64) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, after := range y.back {
		last = max(last, after)
	}
	peak, mean = busiest(y.all[:int(last/time.Second)+1])
	return len(y.back), last, peak, mean
}

// between is busiest from one second to another.
func (y *tally) between(from, to int) (peak int, mean float64) {
	y.mu.Lock()
	defer y.mu.Unlock()
	return busiest(y.all[from:to])
}

// busiest is the greatest of the numbers, and the mean of them.
func busiest(seconds []int) (peak int, mean float64) {
	sum := 0
	for _, n := range seconds {
		peak, sum = max(peak, n), sum+n
	}
	return peak, float64(sum) / float64(len(seconds))
}

// fleet joins agents whose answers are counted, some at a time.
func (w *world) fleet(size int, y *tally) []agent.Config {
	all := make([]agent.Config, size)
	var wg sync.WaitGroup
	for first := range 8 {
		wg.Go(func() {
			for i := first; i < size; i += 8 {
				all[i], _ = w.join("", agent.Config{})
				all[i].Wrap = func(next http.RoundTripper) http.RoundTripper { return counted{y, i, next} }
			}
		})
	}
	wg.Wait()
	return all
}

// start runs agents, all at once.
func (w *world) start(all []agent.Config) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, cfg := range all {
		wg.Go(func() {
			a, err := agent.New(cfg)
			if err == nil {
				err = a.Run(ctx)
			}
			if err != nil {
				w.t.Error(err)
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// rungs counts the nodes that are online, by their rung.
func (w *world) rungs() map[string]int {
	w.t.Helper()
	rungs := map[string]int{}
	for after := ""; ; {
		page := must(w, api.ListNodes, api.ListNodesRequest{Cursor: api.Cursor{Limit: 200, After: after}})
		for _, n := range page.Items {
			if n.Presence == api.Online && n.Wake != nil {
				rungs[n.Wake.Rung]++
			}
		}
		if after = page.Next; after == "" {
			return rungs
		}
	}
}

// raced says that the race detector is on, which takes five times as much of
// the processor: then the heaviest tests do less.
func raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// mostAtOnce is how many times the mean a peak may be. Of fewer agents chance makes
// more.
func mostAtOnce() float64 {
	if raced() {
		return 4
	}
	return 3
}

func fleetSize() int {
	if raced() {
		return 100
	}
	return 500
}

// A server that stops ends 500 streams in under 5 s. When it is back, so is
// everybody within 30 s, and never three times as many at once as on average.
func TestFleetComesBack(t *testing.T) {
	t.Parallel()
	size := fleetSize()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.up()
		y := &tally{}
		y.reset()
		all := w.fleet(size, y)
		y.reset()
		defer w.start(all)()
		time.Sleep(30 * time.Second)
		if rungs := w.rungs(); rungs["stream"] != size {
			t.Fatalf("of %d agents so many are online on each rung: %v", size, rungs)
		}
		// They began at once, and do not beat at once for ever.
		if peak, mean := y.between(10, 30); float64(peak) > mostAtOnce()*mean {
			t.Errorf("begun at once, they make %d requests in one second, %.1f on average", peak, mean)
		}
		for _, away := range []time.Duration{10 * time.Second, time.Second, 2 * time.Minute} {
			if !raced() || away > time.Second {
				w.comeBack(t, size, away, y)
			}
		}
		time.Sleep(time.Minute)
		if rungs := w.rungs(); rungs["stream"] != size {
			t.Errorf("a minute later so many are online on each rung: %v", rungs)
		}
		if got := strings.Join(w.events(""), " "); strings.Contains(got, "node_offline") {
			t.Errorf("events: %s", got)
		}
	})
}

// comeBack has the server go away for a while, and looks at the return.
func (w *world) comeBack(t *testing.T, size int, away time.Duration, y *tally) {
	t.Helper()
	stopping := time.Now()
	w.down()
	if took := time.Since(stopping); took >= 5*time.Second {
		t.Errorf("the server took %v to stop", took)
	}
	time.Sleep(away)
	w.up()
	y.reset()
	time.Sleep(30 * time.Second)
	n, last, peak, mean := y.returned()
	t.Logf("away for %v: %d back within %v, at most %d answers in a second, %.1f on average: %v, %v", away, n, last, peak, mean, y.all, y.calls)
	if n < size || float64(peak) > mostAtOnce()*mean {
		t.Errorf("away for %v: %d of %d came back within %v, with %d answers in one second, %.1f on average", away, n, size, last, peak, mean)
	}
}
