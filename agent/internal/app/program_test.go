package app_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/beckon-fleet/beckon/agent/internal/process"
	"github.com/beckon-fleet/beckon/api"
)

func TestProgram(t *testing.T) {
	b := bare(t)

	t.Run("listens where it is told, among its files", func(t *testing.T) {
		n := b.node(t)
		p := n.next("env", "who", "serve")
		p.Port, p.Env = 8080, map[string]string{"TEXT": "hello", "PORT": "1", "HOME": "/elsewhere"}
		i := n.deploy(p)
		n.answers(i.Publish, "hello")
		port := strings.TrimPrefix(i.Publish, "127.0.0.1:")
		if i.Runtime != "process" || fmt.Sprint(i.Port) != port || i.ID != p.DeploymentID || i.Name != instanceName(p) || i.StartedAt == nil {
			t.Errorf("the instance is %+v", i)
		}
		for _, line := range []string{"PORT=" + port, "HOST=127.0.0.1", "HOME=/elsewhere", "TEXT=hello", "BECKON_INSTANCE=" + p.DeploymentID} {
			n.wrote(p, line)
		}
		lines, err := n.programs().Lines(p.DeploymentID, 100)
		if err != nil || slices.ContainsFunc(lines, func(l process.Line) bool { return strings.HasPrefix(l.Line, "GOTOOLCHAIN=") }) {
			t.Errorf("it has the agent's environment: %v, %v", lines, err)
		}
		who := fmt.Sprintf("who %d %d [] %s", 65534, 65534, n.folder(p, "root"))
		if os.Geteuid() != 0 {
			who = fmt.Sprintf("who %d ", os.Geteuid())
			if len(i.Notes) != 1 || !strings.Contains(i.Notes[0], "run the agent as root") {
				t.Errorf("its notes are %q", i.Notes)
			}
		} else if len(i.Notes) != 0 {
			t.Errorf("its notes are %q", i.Notes)
		}
		if !slices.ContainsFunc(lines, func(l process.Line) bool { return strings.HasPrefix(l.Line, who) }) {
			t.Errorf("%q is not in %v", who, lines)
		}
	})

	t.Run("sees nothing of the agent's", func(t *testing.T) {
		n := b.node(t)
		p := n.next("wait", "1h")
		p.Env = map[string]string{"SECRET": "x"}
		n.deploy(p)
		for name, want := range map[string]fs.FileMode{"root": 0o700, "logs": 0o700, "spec.json": 0o600, "wish.json": 0o600, "state.json": 0o600} {
			if info, err := os.Stat(n.folder(p, name)); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %v, %v", name, info, err)
			}
		}
		if os.Geteuid() == 0 {
			look := exec.Command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "ls", n.dir)
			if out, err := look.CombinedOutput(); err == nil {
				t.Errorf("its user can list the instances: %s", out)
			}
		}
	})

	t.Run("ends with all that it has started", func(t *testing.T) {
		n := b.node(t)
		p := n.next("child", "serve")
		p.Port, p.Env = 80, map[string]string{"TEXT": "x"}
		n.deploy(p)
		n.wrote(p, "child")
		if got := belonging(t, p); got != 2 {
			t.Errorf("%d processes belong to it", got)
		}
		n.stop()
		if got := belonging(t, p); got != 0 {
			t.Errorf("%d processes are left", got)
		}
	})

	t.Run("is told of with its reason when it cannot start", func(t *testing.T) {
		n := b.node(t)
		for program, words := range map[string]string{
			"./nothing":        "start ./nothing: no such file",
			"nothing":          "there is no program nothing",
			"program":          "to run the file of the archive, write ./program",
			"./page":           "permission denied",
			"./page/hello.txt": "it is no program for this machine",
			"../../lock":       "no such file",
		} {
			p := n.next()
			p.Command = []string{program}
			n.refuse(p, "failed: ", words)
		}
		if got := n.made(); len(got) != 0 {
			t.Errorf("%q are left", got)
		}
	})

	t.Run("ends when its files are taken away", func(t *testing.T) {
		n := b.node(t)
		p := n.next("wait", "1h")
		n.deploy(p)
		pid := n.supervisor(p)
		if err := os.RemoveAll(n.folder(p)); err != nil {
			t.Fatal(err)
		}
		n.until("it ends", func() bool { return belonging(t, p) == 0 })
		n.until("its supervisor ends", func() bool {
			_, _ = n.Observe(n.ctx) // lets go of it
			_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
			return err != nil
		})
	})

	t.Run("of the system, by its name", func(t *testing.T) {
		n := b.node(t)
		p := n.next()
		p.Command = []string{"sh", "-c", "echo shell; cat page/hello.txt; echo; exec sleep 1h"}
		n.deploy(p)
		n.wrote(p, "shell")
		n.wrote(p, "hello")
	})
}

// belonging counts the processes of an instance by their environment.
func belonging(t *testing.T, p api.DeployPayload) (n int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if env, err := os.ReadFile(path); err == nil && bytes.Contains(env, []byte("BECKON_INSTANCE="+p.DeploymentID)) {
			n++
		}
	}
	return n
}

// A log is bounded, whatever the program writes, and always text.
func TestProgramLog(t *testing.T) {
	b := bare(t)

	t.Run("flood", func(t *testing.T) {
		n := b.node(t)
		p := n.next("flood", "100", "say", "after the flood", "wait", "1h")
		n.deploy(p)
		n.wrote(p, "after the flood")
		size := int64(0)
		files, err := os.ReadDir(n.folder(p, "logs"))
		for _, f := range files {
			info, err := f.Info()
			if err != nil {
				t.Fatal(err)
			}
			size += info.Size()
		}
		if err != nil || len(files) != 3 || size > 4<<20 {
			t.Errorf("the log has %d files of %d bytes, %v", len(files), size, err)
		}
		lines, err := n.programs().Lines(p.DeploymentID, 1e6)
		if err != nil || lines[len(lines)-1].N != 100<<13+1 || lines[len(lines)-1].N-lines[0].N != int64(len(lines)-1) {
			t.Errorf("%d lines, from %+v to %+v, %v", len(lines), lines[0], lines[len(lines)-1], err)
		}
	})

	t.Run("bytes", func(t *testing.T) {
		n := b.node(t)
		p := n.next("raw", "cry", "on the other stream", "wait", "1h")
		n.deploy(p)
		n.wrote(p, "on the other stream")
		lines, err := n.programs().Lines(p.DeploymentID, 10)
		if err != nil || len(lines) != 3 {
			t.Fatalf("%+v, %v", lines, err)
		}
		for _, l := range lines {
			if !utf8.ValidString(l.Line) || len(l.Line) > 2000 || l.At.IsZero() || (l.Stream == "stderr") != (l.Line == "on the other stream") {
				t.Errorf("line %+v", l)
			}
		}
		if !slices.ContainsFunc(lines, func(l process.Line) bool { return len(l.Line) == 2000 && strings.HasSuffix(l.Line, "x…") }) {
			t.Errorf("the long line is not cut: %+v", lines)
		}
	})
}

// Whatever becomes of the agent, an instance runs on.
func TestProgramOutlivesTheAgent(t *testing.T) {
	b := bare(t)
	n := b.alone(t)
	n.app = "app_mortal"
	file := filepath.Join(t.TempDir(), "archive")
	if err := os.WriteFile(file, b.archive, 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	agent := exec.Command(self)
	agent.Env = append(os.Environ(), mortalAgent+"="+strings.Join([]string{n.dir, n.id, n.app, file}, ","))
	agent.Stderr = os.Stderr
	out, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	word := make([]byte, 9)
	if _, err := io.ReadFull(out, word); err != nil {
		t.Fatalf("the agent said %q, %v", word, err)
	}
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait()

	p := api.DeployPayload{DeploymentID: "dep_mortal01", AppID: n.app, App: "web", Revision: 1}
	if state, words := n.sees(p); state != api.DeploymentRunning {
		t.Errorf("it is %s: %s", state, words)
	}
	n.wrote(p, "beat 40") // all of it after the agent's end
	n.until("the next agent knows how it ended", func() bool {
		state, words := n.sees(p)
		return state == api.DeploymentFailed && strings.Contains(words, "exited with code 9")
	})
}

func TestProgramLosesItsSupervisor(t *testing.T) {
	b := bare(t)
	n := b.alone(t)
	p := n.server("one")
	i := n.deploy(p)
	first := n.process(p).PID
	n.kill(n.supervisor(p))
	n.until("the program ends with its supervisor", func() bool { return belonging(t, p) == 0 })
	if state, words := n.sees(p); state != api.DeploymentFailed || !strings.Contains(words, "ended together with its supervisor") {
		t.Errorf("it is %s: %s", state, words)
	}
	n.Keep()
	n.answers(i.Publish, "one")
	if now := n.process(p); now.PID == first || now.Restarts != 1 || now.State != process.Running {
		t.Errorf("it is %+v", now)
	}
	n.until("it counts as running again", func() bool {
		state, _ := n.sees(p)
		return state == api.DeploymentRunning
	})
	n.kill(n.supervisor(p))
	n.until("it is gone", func() bool { return belonging(t, p) == 0 })
	n.stop()
	n.Keep()
	if state, words := n.sees(p); state != api.DeploymentStopped {
		t.Errorf("stopped without a supervisor it is %s: %s", state, words)
	}
	if res, err := n.restart(); err != nil || res.Instance.Restarts != 0 {
		t.Errorf("restarted it is %+v, %v", res, err)
	}
}

// After a restart of the machine nothing runs, and nothing has been told.
func TestProgramAfterAReboot(t *testing.T) {
	b := bare(t)
	n := b.alone(t)
	all := map[string]api.DeployPayload{}
	for name, policy := range map[string]api.RestartPolicy{
		"always": api.RestartAlways, "on_failure": api.RestartOnFailure, "never": api.RestartNever, "stopped": api.RestartAlways,
	} {
		p := n.next("wait", "1h")
		p.AppID, p.Restart = n.app+"_"+name, policy
		n.deploy(p)
		all[name] = p
	}
	if _, err := n.Stop(n.ctx, api.StopPayload{AppID: all["stopped"].AppID, App: "web"}); err != nil {
		t.Fatal(err)
	}
	for name, p := range all {
		if name != "stopped" {
			text, err := os.ReadFile(filepath.Join(n.dir, p.AppID, p.DeploymentID, "lock"))
			if err != nil {
				t.Fatal(err)
			}
			pid := 0
			if _, err := fmt.Sscan(string(text), &pid); err != nil {
				t.Fatal(err)
			}
			n.kill(pid)
		}
		n.until("nothing runs", func() bool { return belonging(t, p) == 0 })
	}
	left := filepath.Join(n.dir, ".new-LEFT")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	if i := n.deploy(all["always"]); i.Restarts != 0 { // its result never came through; it is proven anew
		t.Errorf("deployed again it is %+v", i)
	}
	n.agent().Keep()
	for name, runs := range map[string]bool{"always": true, "on_failure": true, "never": false, "stopped": false} {
		p := all[name]
		n.until(name+" is as it should be", func() bool { return !runs || n.process(p).State == process.Running })
		if !runs && belonging(t, p) != 0 {
			t.Errorf("%s was started", name)
		}
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a half-made instance was left: %v", err)
	}
}

// A damaged file never starts anything by itself, and a deploy mends it.
func TestProgramWithDamagedFiles(t *testing.T) {
	b := bare(t)
	for _, name := range []string{"wish.json", "state.json"} {
		for damage, content := range map[string]string{"empty": "", "half": `{"run": "x`, "zeros": "\x00\x00\x00"} {
			t.Run(name+" "+damage, func(t *testing.T) {
				n := b.node(t)
				p := n.server("one")
				n.deploy(p)
				if err := os.WriteFile(n.folder(p, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
				all, silent := n.Observe(n.ctx)
				if len(silent) != 0 || len(all) != 1 || !strings.Contains(strings.Join(all[0].Instance.Notes, " "), "damaged") {
					t.Errorf("it sees %+v, %v", all, silent)
				}
				next := n.server("two")
				n.answers(n.deploy(next).Publish, "two")
				n.only(next)
				if belonging(t, p) != 0 {
					t.Error("the old one runs on")
				}
			})
		}
	}
}

func TestProgramLimits(t *testing.T) {
	b := bare(t)
	n := b.alone(t)
	p := n.next("say", "alive", "wait", "300ms", "eat")
	p.Resources = api.Resources{MemBytes: 32 << 20, CPUCores: 0.5}
	p.ObserveS = 5
	if controllers, _ := os.ReadFile("/sys/fs/cgroup/cgroup.controllers"); !strings.Contains(string(controllers), "memory") || os.Geteuid() != 0 {
		n.does(&p, "wait", "1h")
		p.ObserveS = 1
		i := n.deploy(p)
		if notes := strings.Join(i.Notes, "\n"); !strings.Contains(notes, "its memory limit is not enforced: ") || !strings.Contains(notes, "its cpu limit is not enforced: ") {
			t.Errorf("without cgroups its notes are %q", i.Notes)
		}
		t.Logf("no cgroup v2 with memory here, and it says so: %q", i.Notes)
		return
	}
	n.refuse(p, "used more memory than it may")
}

// An app may change from a container to a process and back.
func TestChangeOfRuntime(t *testing.T) {
	b := newBench(t)
	n := b.alone(t)
	n.dir = processes(t)
	b.archive = packed(t)
	n.bench = b
	n.Service = n.agent()
	n.deploy(n.server("container"))

	n.bench.runtime = api.RuntimeProcess
	bad := n.next("exit", "3")
	bad.Image = ""
	n.refuse(bad, "it exited with code 3", "revision 1 runs on")
	p := n.server("process")
	p.Image = ""
	n.answers(n.deploy(p).Publish, "process")
	n.only(p)
	if left := n.containers(); len(left) != 0 {
		t.Errorf("the container is left: %q", left)
	}

	n.bench.runtime = api.RuntimeDocker
	back := n.server("container again")
	n.answers(n.deploy(back).Publish, "container again")
	n.only(back)
	if left := n.processes(); len(left) != 0 {
		t.Errorf("the process is left: %+v", left)
	}
}
