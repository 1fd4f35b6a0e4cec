package bench

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/e2e/kit/need"
	"github.com/beckon-fleet/beckon/e2e/kit/proc"
	"github.com/beckon-fleet/beckon/e2e/kit/wait"
)

// process is a program that is measured.
type process struct {
	*proc.Process
	pid string
}

var pidLine = regexp.MustCompile(`(?m)^pid (\d+)$`)

// start starts a program: on the CPU that is kept for what is measured, where
// there is one and pinned says so. It ends with b.
func start(b *testing.B, pinned bool, name string, env []string, args ...string) process {
	b.Helper()
	if _, err := os.Stat("/proc/self/task"); err != nil {
		need.Missing(b, "the benchmarks read CPU time and memory in /proc: run them on Linux")
	}
	// The shell tells its process id, which the program that it becomes keeps.
	line := []string{"-c", `echo "pid $$"; exec "$@"`, "sh"}
	if cpu := os.Getenv("BENCH_CPU"); cpu != "" && pinned {
		line = append(line, "taskset", "-c", cpu)
	}
	line = append(append(line, program(b, name)), args...)
	p, err := proc.Start(proc.Spec{Name: name, Logs: b.TempDir(), Path: "/bin/sh", Args: line, Env: proc.Environ(env...)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Kill)
	started := process{Process: p}
	started.pid = started.says(b, pidLine)
	return started
}

// says waits for the program to write a line, and returns what it names.
func (p process) says(b *testing.B, line *regexp.Regexp) (named string) {
	b.Helper()
	wait.For(b, "a line of output", func() error {
		if m := line.FindStringSubmatch(p.Out()); m != nil {
			named = m[1]
			return nil
		}
		if !p.Runs() {
			b.Fatalf("it has ended: %s", p.Err())
		}
		return fmt.Errorf("it has written %q", p.Out())
	})
	return named
}

// cpuTime is what the process has used so far, user and system, to the
// nanosecond: all of its threads, which Go never ends.
func (p process) cpuTime(b *testing.B) time.Duration { return cpuTime(b, p.pid) }

// ownCPUTime is that of the benchmarks themselves.
func ownCPUTime(b *testing.B) time.Duration { return cpuTime(b, "self") }

func cpuTime(b *testing.B, pid string) time.Duration {
	b.Helper()
	threads, err := filepath.Glob("/proc/" + pid + "/task/*/schedstat")
	if err != nil || len(threads) == 0 {
		b.Fatalf("read CPU time of process %s: it has no threads (%v)", pid, err)
	}
	var all time.Duration
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			b.Fatal(err)
		}
		ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		all += time.Duration(ns)
	}
	return all
}

var rssLine = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`)

// memory is the process's resident set, in bytes.
func (p process) memory(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile("/proc/" + p.pid + "/status")
	if err != nil {
		b.Fatal(err)
	}
	m := rssLine.FindSubmatch(text)
	if m == nil {
		b.Fatalf("process %s has no memory", p.pid)
	}
	kib, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		b.Fatal(err)
	}
	return kib * 1024
}

// settledMemory is memory once that has hardly changed for two seconds: after
// a burst of work, Go gives back what it no longer needs bit by bit.
func (p process) settledMemory(b *testing.B) float64 {
	b.Helper()
	const calm, looks = 250 * time.Millisecond, 8
	last, since := p.memory(b), 0
	for tries := 0; since < looks && tries < 15*looks; tries++ {
		pause(calm)
		now := p.memory(b)
		if since++; math.Abs(now-last) > last/200 {
			last, since = now, 0
		}
	}
	return p.memory(b)
}

// pause is a length of the measurement, not a wait for something to happen.
func pause(d time.Duration) { <-time.After(d) }

// cpus is how many CPUs the machine has, whatever this process may use.
func cpus() int {
	all, err := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*")
	if err != nil {
		return 0
	}
	return len(all)
}
