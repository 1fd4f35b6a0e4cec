package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/beckon-fleet/beckon/e2e/kit/engine"
	"github.com/beckon-fleet/beckon/e2e/kit/need"
	"github.com/beckon-fleet/beckon/e2e/kit/proc"
	"github.com/beckon-fleet/beckon/e2e/kit/wait"
	"github.com/rogpeppe/go-internal/testscript"
)

// A command line is tested by its transcript: testdata/*.txtar, run with the
// built programs. Beside testscript's own commands they know
//
//	exits CODE PROGRAM ARG...   run a program that ends with this exit code
//	start NAME PROGRAM ARG...   run one beside the script; it writes NAME.out and NAME.err
//	signal NAME INT|TERM|KILL   send it a signal
//	end NAME CODE               wait until it has ended by itself, with this exit code
//	until REGEXP FILE           wait until a file matches
//	becomes REGEXP PROGRAM ...  run a program until its stdout matches
//	take NAME REGEXP FILE       set a variable to what the parentheses match
//	up                          start the server in folder srv, as an operator of it
//	node NAME                   join this machine as a node and start its agent as NAME
//	docker VAR                  need an engine; set a variable to the name of an image
//
// and the variables AGENTS and OPERATORS, two addresses to listen on.
func TestTranscripts(t *testing.T) {
	needPrograms(t, "bash", "curl", "jq", "openssl")
	dir := programs.Dir(t)
	testscript.Run(t, testscript.Params{
		Dir:                "testdata",
		RequireUniqueNames: true,
		Setup:              func(e *testscript.Env) error { return prepare(e, dir) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "start": start, "signal": signal, "end": end, "until": until,
			"becomes": becomes, "take": take, "up": up, "node": node, "docker": docker,
		},
	})
}

func needPrograms(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			need.Missing(t, "this test needs "+name+": install it")
		}
	}
}

// stage is the processes beside one script.
type stage struct {
	t       testing.TB
	running map[string]*proc.Process
}

func prepare(e *testscript.Env, programs string) error {
	t, ok := e.T().(testing.TB)
	if !ok {
		return errors.New("the transcripts need testing.T")
	}
	s := &stage{t, map[string]*proc.Process{}}
	e.Values["stage"] = s
	e.Setenv("PATH", programs+string(os.PathListSeparator)+os.Getenv("PATH"))
	e.Setenv("HOME", e.WorkDir)
	e.Setenv("GORACE", proc.Race)
	e.Setenv("AGENTS", ports.Free(t))
	e.Setenv("OPERATORS", ports.Free(t))
	e.Setenv("BECKON_URL", "http://"+e.Getenv("OPERATORS"))
	e.Setenv("BECKON_TOKEN", "")
	if host, ok := os.LookupEnv("DOCKER_HOST"); ok {
		e.Setenv("DOCKER_HOST", host)
	}
	e.Defer(func() { s.clear(e.WorkDir) })
	return nil
}

// clear ends what the script left running, and removes its containers.
func (s *stage) clear(dir string) {
	for _, p := range s.running {
		p.Kill()
		if strings.Contains(p.Err(), "DATA RACE") {
			s.t.Errorf("the race detector found something:\n%s", p.Err())
		}
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.err"))
	if err != nil {
		s.t.Error(err)
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			s.t.Error(err)
		}
		for _, node := range regexp.MustCompile(`msg="agent runs" node=(\S+)`).FindAllSubmatch(text, -1) {
			if err := engine.Clear(string(node[1])); err != nil && s.t.Failed() {
				s.t.Log(err)
			}
		}
		if s.t.Failed() {
			s.t.Logf("== %s\n%s", filepath.Base(log), text)
		}
	}
}

func on(ts *testscript.TestScript) *stage { return ts.Value("stage").(*stage) }

// arguments wants at least so many, and no "!".
func arguments(ts *testscript.TestScript, neg bool, args []string, least int, usage string) {
	if neg || len(args) < least {
		ts.Fatalf("usage: %s", usage)
	}
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "exits CODE PROGRAM ARG...")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d\n%s", code, want, ts.ReadFile("stderr"))
	}
}

func start(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "start NAME PROGRAM ARG...")
	launch(ts, args[0], args[1], args[2:]...)
}

func launch(ts *testscript.TestScript, name, program string, args ...string) *proc.Process {
	s := on(ts)
	if p := s.running[name]; p != nil && p.Runs() {
		ts.Fatalf("%s runs already", name)
	}
	var env []string
	for _, key := range []string{"PATH", "GORACE", "HOME", "TMPDIR", "DOCKER_HOST", "BECKON_URL", "BECKON_TOKEN", "BECKON_AGENT_STATE"} {
		if value := ts.Getenv(key); value != "" {
			env = append(env, key+"="+value)
		}
	}
	if strings.HasPrefix(program, "beckon") {
		folder, _, _ := strings.Cut(ts.Getenv("PATH"), string(os.PathListSeparator))
		program = filepath.Join(folder, program)
	}
	p, err := proc.Start(proc.Spec{Name: name, Logs: ts.Getenv("WORK"), Path: program, Args: args, Dir: ts.MkAbs("."), Env: env})
	ts.Check(err)
	s.running[name] = p
	return p
}

func process(ts *testscript.TestScript, name string) *proc.Process {
	p := on(ts).running[name]
	if p == nil {
		ts.Fatalf("nothing was started as %s", name)
	}
	return p
}

func signal(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "signal NAME INT|TERM|KILL")
	s, ok := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}[args[1]]
	if !ok {
		ts.Fatalf("there is no signal %s", args[1])
	}
	ts.Check(process(ts, args[0]).Signal(s))
}

func end(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "end NAME CODE")
	p := process(ts, args[0])
	code, err := p.Exit(wait.Long)
	if err != nil || strconv.Itoa(code) != args[1] {
		ts.Fatalf("%s: exit code %d, want %s, %v\n%s", args[0], code, args[1], err, p.Err())
	}
}

func until(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "until REGEXP FILE")
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	ts.Check(wait.Until(wait.Long, func() error {
		text, err := os.ReadFile(ts.MkAbs(args[1]))
		if err == nil && !pattern.Match(text) {
			err = fmt.Errorf("%s does not match %s:\n%s", args[1], args[0], text)
		}
		return err
	}))
}

func becomes(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "becomes REGEXP PROGRAM ARG...")
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	ts.Check(wait.Until(wait.Long, func() error {
		err := ts.Exec(args[1], args[2:]...)
		if err == nil && !pattern.MatchString(ts.ReadFile("stdout")) {
			err = fmt.Errorf("no match for %s", args[0])
		}
		return err
	}))
}

func take(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3, "take NAME REGEXP FILE")
	text := ts.ReadFile(args[2])
	m := regexp.MustCompile("(?m)" + args[1]).FindStringSubmatch(text)
	if len(m) != 2 {
		ts.Fatalf("%s: no match for %s in\n%s", args[0], args[1], text)
	}
	ts.Setenv(args[0], m[1])
}

func up(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 0, "up")
	p := launch(ts, "server", "beckon", "server", "--data", "srv", "--agent-listen", ts.Getenv("AGENTS"), "--operator-listen", ts.Getenv("OPERATORS"))
	until(ts, false, []string{"msg=serving", "server.err"})
	if strings.Contains(p.Out(), "operator token") {
		take(ts, false, []string{"BECKON_TOKEN", `^operator token: (\S+)$`, "server.out"})
	}
}

func node(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 1, "node NAME")
	// All nodes of a script are one machine.
	ts.Check(ts.Exec("beckon", "token", "create", "--name", args[0], "--allow-machine-reuse"))
	words := strings.Fields(ts.ReadFile("stdout"))
	launch(ts, args[0], words[0], append(words[1:], "--state", args[0]+".state")...)
	becomes(ts, false, []string{`presence: +online`, "beckon", "node", "show", args[0]})
}

func docker(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 1, "docker VAR")
	engine.Need(on(ts).t)
	name, err := image.Name()
	ts.Check(err)
	ts.Setenv(args[0], name)
}
