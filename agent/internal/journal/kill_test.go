package journal_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/agent/internal/journal"
	"github.com/beckon-fleet/beckon/api"
)

// victimEnv makes this test binary the process that is killed.
const victimEnv = "BECKON_JOURNAL_VICTIM"

var order = []journal.Step{journal.Received, journal.Accepted, journal.Started, journal.Finished, journal.Confirmed}

func TestMain(m *testing.M) {
	if path := os.Getenv(victimEnv); path != "" {
		if err := write(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// write takes commands through their steps, and says each when it is done,
// until it is killed.
func write(path string) error {
	j, err := journal.Open(path, time.Now)
	if err != nil {
		return err
	}
	if j.Damage() != nil {
		return j.Damage()
	}
	base, err := j.HighestSeq()
	if err != nil {
		return err
	}
	for seq := base + 1; ; seq++ {
		id := fmt.Sprintf("cmd_%d", seq)
		for _, step := range order {
			if err := take(j, id, seq, step); err != nil {
				return err
			}
			fmt.Println(id, step)
		}
	}
}

func take(j *journal.Journal, id string, seq int64, step journal.Step) (err error) {
	switch step {
	case journal.Received:
		_, err = j.Receive(id, seq, command(id, noon))
	case journal.Accepted:
		err = j.Accept(id)
	case journal.Started:
		_, err = j.Start(id)
	case journal.Finished:
		err = j.Finish(id, api.Result{Status: api.OutcomeSucceeded})
	case journal.Confirmed:
		err = j.Confirm(id)
	}
	return err
}

// kill -9 between any two steps loses nothing that had returned.
func TestKilledProcessLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	said := map[string]journal.Step{}
	const rounds = 8
	for range rounds {
		killed(t, path, rand.IntN(40), said)
	}
	j, err := journal.Open(path, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if j.Damage() != nil || j.Instance().Starts != rounds+1 {
		t.Errorf("%s: %v", j.Instance(), j.Damage())
	}
	if len(said) < rounds {
		t.Fatalf("only %d commands were written", len(said))
	}
	for id, step := range said {
		e, err := j.Get(id)
		if err != nil || e == nil || slices.Index(order, e.Step) < slices.Index(order, step) {
			t.Errorf("%s was %s, and now is %+v, %v", id, step, e, err)
		}
	}
}

// killed runs a writer, kills it after so many lines, and collects all that it
// had said by then.
func killed(t *testing.T, path string, after int, said map[string]journal.Step) {
	t.Helper()
	victim := exec.CommandContext(t.Context(), os.Args[0])
	victim.Env = append(os.Environ(), victimEnv+"="+path)
	victim.Stderr = os.Stderr
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		var id string
		var step journal.Step
		if _, err := fmt.Sscan(lines.Text(), &id, &step); err != nil {
			t.Errorf("%q: %v", lines.Text(), err)
		}
		said[id] = step
		if n == after {
			if err := victim.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := victim.Wait(); err == nil || victim.ProcessState.Exited() {
		t.Fatalf("it was not killed: %v", victim.ProcessState)
	}
}
