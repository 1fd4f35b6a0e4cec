package proc_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/beckon-fleet/beckon/e2e/kit/proc"
	"github.com/beckon-fleet/beckon/e2e/kit/wait"
)

func TestProcess(t *testing.T) {
	t.Setenv("BECKON_TOKEN", "secret")
	for name, c := range map[string]struct {
		script string
		signal syscall.Signal
		code   int
	}{
		"success": {"exit 0", 0, 0},
		"failure": {"exit 3", 0, 3},
		"asked":   {"trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done", syscall.SIGTERM, 5},
		"killed":  {"echo ready; exec sleep 60", syscall.SIGKILL, 137},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := proc.Start(proc.Spec{
				Name: "it", Logs: t.TempDir(), Path: "bash", Args: []string{"-c", c.script + "; echo $BECKON_TOKEN"}, Env: proc.Environ(),
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Kill)
			if c.signal != 0 {
				wait.For(t, "the script", func() error {
					if !strings.Contains(p.Out(), "ready") {
						return errors.New("it is not ready")
					}
					return p.Signal(c.signal)
				})
			}
			code, err := p.Exit(wait.Long)
			if err != nil || code != c.code || p.Runs() || strings.Contains(p.Out(), "secret") {
				t.Errorf("exit code %d, %v, runs %v, wrote %q; want %d", code, err, p.Runs(), p.Out(), c.code)
			}
		})
	}
}
