// Package proc runs programs as processes of a test. It ends those that it
// started, and no others.
package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// patience is how long a process may take to end when it is asked to.
const patience = 20 * time.Second

// Spec is a program to run.
type Spec struct {
	Name string // of its output: NAME.out and NAME.err in Logs
	Logs string
	Path string
	Args []string
	Dir  string
	Env  []string // all of it
}

// Process is a program that runs, or has ended.
type Process struct {
	spec Spec
	cmd  *exec.Cmd
	done chan struct{}
}

// Start starts a program. An output of the same name begins anew.
func Start(s Spec) (*Process, error) {
	cmd := exec.Command(s.Path, s.Args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = s.Dir, s.Env, &syscall.SysProcAttr{}
	tie(cmd.SysProcAttr)
	out, err := os.Create(filepath.Join(s.Logs, s.Name+".out"))
	if err != nil {
		return nil, fmt.Errorf("make output file: %w", err)
	}
	defer out.Close()
	note, err := os.Create(filepath.Join(s.Logs, s.Name+".err"))
	if err != nil {
		return nil, fmt.Errorf("make output file: %w", err)
	}
	defer note.Close()
	cmd.Stdout, cmd.Stderr = out, note
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Name, err)
	}
	p := &Process{spec: s, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // Exit reads what became of it
	}()
	return p, nil
}

// Signal sends one signal to the process and to nothing else.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("signal %s: %w", p.spec.Name, err)
	}
	return nil
}

// Runs reports whether the process has not ended.
func (p *Process) Runs() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Exit waits for the process to end by itself and returns its exit code as a
// shell tells it: 128 and the signal, where a signal ended it.
func (p *Process) Exit(within time.Duration) (int, error) {
	select {
	case <-p.done:
	case <-time.After(within):
		return 0, fmt.Errorf("%s has not ended within %v", p.spec.Name, within)
	}
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return p.cmd.ProcessState.ExitCode(), nil
}

// Kill is kill -9. When it returns, the process is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may be gone already
	<-p.done
}

// Stop asks the process to end and returns its exit code. One that does not is
// killed, which is an error.
func (p *Process) Stop() (int, error) {
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return 0, err
	}
	code, err := p.Exit(patience)
	if err != nil {
		p.Kill()
	}
	return code, err
}

// Out is what the process has written to stdout so far.
func (p *Process) Out() string { return p.read(".out") }

// Err is what the process has written to stderr so far.
func (p *Process) Err() string { return p.read(".err") }

func (p *Process) read(ending string) string {
	text, err := os.ReadFile(filepath.Join(p.spec.Logs, p.spec.Name+ending))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Environ is this process's environment without what would steer Beckon's own
// programs, and with more.
func Environ(more ...string) (env []string) {
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "BECKON_") {
			env = append(env, pair)
		}
	}
	return append(append(env, "GORACE="+Race), more...)
}

// Race is GORACE for programs built with the race detector: a race ends them,
// and nothing else keeps them from ending.
const Race = "halt_on_error=1 atexit_sleep_ms=0"
