package e2e

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/e2e/kit/cluster"
	"github.com/beckon-fleet/beckon/e2e/kit/engine"
	"github.com/beckon-fleet/beckon/e2e/kit/proc"
	"github.com/beckon-fleet/beckon/e2e/kit/wait"
)

// deaths is where in a command's life a program is killed. Each is tried with
// every command of victims.
var deaths = []death{
	{"server", "stored"},
	{"server", "delivered"},
	{"server", "acked"},
	{"server", "result stored"},
	{"agent", "received"},
	{"agent", "journalled"},
	{"agent", "acked"},
	{"agent", "started"},
	{"agent", "finished"},
	{"agent", "result sent"},
	{"agent", "result confirmed"},
}

type death struct{ program, point string }

// victims are the commands that are under way when a program dies, in the
// order in which they are sent, and what each does to containers: once.
var victims = []victim{
	{api.Deploy.Name(), deployApp, map[string]int{"create": 1, "start": 1, "die": 0, "destroy": 0}},
	{api.Restart.Name(), restartApp, map[string]int{"create": 0, "start": 1, "die": 1, "destroy": 0}},
}

type victim struct {
	kind   string
	send   func(*cluster.Cluster, api.Write) error
	effect map[string]int
}

func deployApp(c *cluster.Cluster, w api.Write) error {
	_, err := cluster.Call(c, api.DeployApp, api.ChangeAppRequest{Write: w, App: "web"})
	return err
}

func restartApp(c *cluster.Cluster, w api.Write) error {
	_, err := cluster.Call(c, api.RestartApp, api.ChangeAppRequest{Write: w, App: "web"})
	return err
}

// Whoever is killed, and wherever: the command ends as it would have, what it
// does is done once, and each step of it is told once, though the operator
// sends it again.
func TestKilled(t *testing.T) {
	engine.Need(t)
	t.Parallel()
	var table killed
	t.Run("at", func(t *testing.T) {
		for _, d := range deaths {
			t.Run(d.program+"/"+d.point, func(t *testing.T) {
				t.Parallel()
				s := newScene(t, d)
				for _, v := range victims {
					table.add(s.play(v))
				}
			})
		}
	})
	t.Log(table.String())
}

// scene is a cluster in which a program dies.
type scene struct {
	t       *testing.T
	death   death
	cluster *cluster.Cluster
	node    *cluster.Node
	witness *engine.Witness
}

func newScene(t *testing.T, d death) *scene {
	c := fixture(t, programs.Faulty(t))
	c.Start("")
	n := c.Join("web-1")
	t.Cleanup(func() {
		n.Process.Kill()
		if err := engine.Clear(n.ID); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(c.Logs())
		}
	})
	n.Start("")
	name, err := image.Name()
	if err != nil {
		t.Fatal(err)
	}
	cluster.Must(c, api.PutApp, api.PutAppRequest{
		App: "web", AppSpec: api.AppSpec{Image: name, Port: 8080, ObserveS: 1}, Placement: api.Placement{Node: n.ID},
	})
	return &scene{t, d, c, n, engine.Watch(t, n.ID)}
}

// play sends a command, sees the program die of it, starts it again and looks
// at what has become of the command.
func (s *scene) play(v victim) []string {
	began := time.Now()
	before := s.counts(v)
	s.arm(s.death.point)
	write := api.Write{Key: rand.Text()}
	sent := v.send(s.cluster, write)
	code, err := s.victim().Exit(wait.Long)
	if err != nil || code != 137 {
		s.t.Fatalf("%s: the %s was to die at %s: exit code %d, %v (sent: %v)", v.kind, s.death.program, s.death.point, code, err, sent)
	}
	s.arm("")
	if err := v.send(s.cluster, write); err != nil && !errors.Is(err, api.Conflict) {
		s.t.Errorf("%s: the repeat: %v", v.kind, err)
	}

	c := s.ended(v.kind)
	if c.State != api.Succeeded {
		s.t.Errorf("%s: the command is %s (%s): %+v", v.kind, c.State, c.Reason, c.Result)
	}
	s.effectOnce(v, before)
	s.runsOnce()
	steps := s.toldOnce(c)
	return []string{
		s.death.program, s.death.point, v.kind, string(c.State), fmt.Sprint(c.Result.Attempt), effects(s.counts(v), before),
		strings.Join(steps, " "), time.Since(began).Round(100 * time.Millisecond).String(),
	}
}

// arm starts the program that is to die anew, with or without a fault.
func (s *scene) arm(point string) {
	s.t.Helper()
	if s.death.program == "server" {
		s.cluster.Stop()
		s.cluster.Start(point)
		return
	}
	s.node.Process.Kill()
	s.node.Start(point)
}

func (s *scene) victim() *proc.Process {
	if s.death.program == "server" {
		return s.cluster.Process
	}
	return s.node.Process
}

// ended is the one command of a kind, once it has ended.
func (s *scene) ended(kind string) (c api.CommandStatus) {
	s.t.Helper()
	wait.For(s.t, "the end of the "+kind, func() error {
		all := cluster.Must(s.cluster, api.ListCommands, api.ListCommandsRequest{App: "web"}).Items
		ours := slices.DeleteFunc(all, func(c api.CommandStatus) bool { return c.Kind != kind })
		if len(ours) != 1 {
			s.t.Fatalf("there are %d commands of kind %s: %+v", len(ours), kind, ours)
		}
		if c = ours[0]; !c.State.Ended() {
			return fmt.Errorf("it is %s, waiting on %s", c.State, c.WaitingOn)
		}
		return nil
	})
	return c
}

func (s *scene) counts(v victim) map[string]int {
	n := map[string]int{}
	for action := range v.effect {
		n[action] = s.witness.Count(action)
	}
	return n
}

func (s *scene) effectOnce(v victim, before map[string]int) {
	s.t.Helper()
	for action, want := range v.effect {
		wait.For(s.t, v.kind+"'s "+action, func() error {
			if n := s.witness.Count(action) - before[action]; n < want {
				return fmt.Errorf("%d times, want %d", n, want)
			}
			return nil
		})
		if n := s.witness.Count(action) - before[action]; n != want {
			s.t.Errorf("%s: %s happened %d times, want %d", v.kind, action, n, want)
		}
	}
}

// runsOnce holds the server's word against the engine's.
func (s *scene) runsOnce() {
	s.t.Helper()
	all, err := engine.Containers(s.node.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	up, err := engine.Containers(s.node.ID, "status=running")
	if err != nil {
		s.t.Fatal(err)
	}
	deployments := cluster.Must(s.cluster, api.ListDeployments, api.ListDeploymentsRequest{App: "web"}).Items
	if len(deployments) != 1 || deployments[0].State != api.DeploymentRunning || deployments[0].Instance == nil {
		s.t.Fatalf("want one running deployment, got %+v", deployments)
	}
	if len(all) != 1 || len(up) != 1 || up[0] != deployments[0].Instance.ID {
		s.t.Errorf("the node has the containers %v, of which %v run; the server says %s", all, up, deployments[0].Instance.ID)
	}
}

// toldOnce lists what the events say of a command and of its deployment.
func (s *scene) toldOnce(c api.CommandStatus) (steps []string) {
	s.t.Helper()
	for subject, want := range map[string]string{
		c.ID:           "command_queued command_delivered command_acked command_succeeded",
		s.deployment(): "deployment_waiting deployment_starting deployment_running",
	} {
		var got []string
		for _, e := range cluster.Must(s.cluster, api.ListEvents, api.ListEventsRequest{Subject: subject}).Items {
			got = append(got, e.Kind)
		}
		if strings.Join(got, " ") != want {
			s.t.Errorf("the events of %s are %v, want %s", subject, got, want)
		}
		if subject == c.ID {
			steps = got
		}
	}
	return steps
}

func (s *scene) deployment() string {
	return cluster.Must(s.cluster, api.ListDeployments, api.ListDeploymentsRequest{App: "web"}).Items[0].ID
}

func effects(after, before map[string]int) string {
	var all []string
	for _, action := range []string{"create", "start", "die", "destroy"} {
		if n := after[action] - before[action]; n != 0 {
			all = append(all, fmt.Sprintf("%d %s", n, action))
		}
	}
	return strings.Join(all, ", ")
}

// killed is the table of what was tried and what became of it.
type killed struct {
	mu   sync.Mutex
	rows [][]string
}

func (k *killed) add(row []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rows = append(k.rows, row)
}

func (k *killed) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	slices.SortFunc(k.rows, slices.Compare)
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nKILLED\tAT\tCOMMAND\tBECAME\tATTEMPTS\tCONTAINER\tTOLD\tTOOK")
	for _, row := range k.rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	w.Flush()
	return text.String()
}
