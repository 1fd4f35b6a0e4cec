package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/e2e/kit/proc"
)

// Witness sees what happens to the containers of one node, while and although
// agents die: the engine itself is asked.
type Witness struct {
	process *proc.Process
}

// Watch begins to watch a node. It ends with the test.
func Watch(t testing.TB, node string) *Witness {
	t.Helper()
	p, err := proc.Start(proc.Spec{
		Name: "docker-events", Logs: t.TempDir(), Path: "docker", Env: proc.Environ(),
		Args: []string{
			"events", "--since", fmt.Sprint(time.Now().Unix()), "--filter", "type=container",
			"--filter", "label=beckon.node=" + node, "--format", "{{.Action}}",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return &Witness{p}
}

// Count is how often something has happened: create, start, die, destroy.
func (w *Witness) Count(action string) (n int) {
	for line := range strings.Lines(w.process.Out()) {
		if strings.TrimSpace(line) == action {
			n++
		}
	}
	return n
}
