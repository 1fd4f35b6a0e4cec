package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/beckon-fleet/beckon/e2e/kit/build"
	"github.com/beckon-fleet/beckon/e2e/kit/cluster"
	"github.com/beckon-fleet/beckon/e2e/kit/engine"
	"github.com/beckon-fleet/beckon/e2e/kit/proc"
)

// What the tests of a run share, each made by the first that asks for it.
var (
	programs build.Programs
	image    engine.Image
	ports    proc.Ports
)

func TestMain(m *testing.M) {
	flag.Parse()
	atLeastParallel(8)
	code := m.Run()
	if err := errors.Join(image.Remove(), programs.Remove()); err != nil {
		fmt.Fprintln(os.Stderr, "cleaning up:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// atLeastParallel has more tests side by side than there are cores: most of
// the time they wait for what other processes do.
func atLeastParallel(n int) {
	f := flag.Lookup("test.parallel")
	if now, err := strconv.Atoi(f.Value.String()); err == nil && now < n {
		f.Value.Set(strconv.Itoa(n))
	}
}

// fixture is a cluster whose server does not run yet.
func fixture(t testing.TB, programs string) *cluster.Cluster {
	t.Helper()
	return cluster.New(t, cluster.Config{Programs: programs, Agents: ports.Free(t), Operators: ports.Free(t)})
}
