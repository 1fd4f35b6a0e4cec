// Package bench measures the built programs, and beside each figure its limit:
// the least that anything could take here, measured in the same run. The ratio
// of the two is what holds on another machine, and on a busy one.
//
//	scripts/bench.sh                                      all figures, as a table
//	scripts/bench.sh -test.bench Wake -test.count 6       one, again and again, for benchstat
//	BENCH_NODES=100 scripts/bench.sh                      with fewer idle nodes than 1,000
package bench

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/beckon-fleet/beckon/e2e/kit/build"
	"github.com/beckon-fleet/beckon/e2e/kit/proc"
)

// What the benchmarks of a run share.
var (
	figures table
	shipped build.Programs
	limits  sync.Once // built into the folder of the shipped ones
	ports   proc.Ports
)

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	figures.print(os.Stdout)
	if err := shipped.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, "cleaning up:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// program is the path of a program that is measured: beckon, beckon-agent,
// limit or hold.
func program(b *testing.B, name string) string {
	b.Helper()
	dir := shipped.Dir(b)
	limits.Do(func() {
		cmd := exec.Command("go", "build", "-o", dir, "./limit", "./hold")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("build the limits: %v\n%s", err, out)
		}
	})
	return filepath.Join(dir, name)
}

// idleNodes is how many idle nodes are connected where many are.
func idleNodes(b *testing.B) int {
	b.Helper()
	text := os.Getenv("BENCH_NODES")
	if text == "" {
		return 1000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		b.Fatalf("BENCH_NODES must be a number above 0, not %q", text)
	}
	return n
}
