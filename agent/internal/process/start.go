package process

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

const (
	// grace is how long a program may take to end when it is asked to.
	grace = 10 * time.Second
	// glance is the time between two looks at what should change.
	glance = 20 * time.Millisecond
	// begin is how long a supervisor may take to say how the start went.
	begin = 20 * time.Second
)

// ErrAddressTaken says that something else listens where the instance must.
var ErrAddressTaken = errors.New("the address is in use")

// Start starts an instance and returns when its program runs, or with why it
// does not. One that has a supervisor already is left alone.
func (d *Driver) Start(ctx context.Context, id string) error {
	at, err := d.mustFind(id)
	if err != nil {
		return err
	}
	if alive, err := at.alive(); err != nil {
		return err
	} else if w, _, damage := at.intent(); alive && damage == nil {
		return d.begun(ctx, at, w.Run)
	}
	s, err := load[spec](at, specFile)
	if err != nil {
		return fmt.Errorf("read what to run: %w", err)
	}
	if err := free(ctx, s.Address); err != nil {
		return err
	}
	run := rand.Text()
	if err := d.spawn(at, func(w *wish, _ state) bool {
		w.Run, w.Up, w.Held, w.Again = run, true, false, false
		return true
	}); err != nil {
		return err
	}
	return d.begun(ctx, at, run)
}

func (d *Driver) mustFind(id string) (folder, error) {
	at, found, err := d.find(id)
	if err == nil && !found {
		err = fmt.Errorf("there is no instance %s", id)
	}
	return at, err
}

// free reports whether a program can listen at an address.
func free(ctx context.Context, address string) error {
	if address == "" {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	switch {
	case err == nil:
		return l.Close()
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("listen on %s: %w", address, ErrAddressTaken)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("nothing can listen on %s: the address is not one of this node", address)
	}
	return fmt.Errorf("listen on %s: %w", address, err)
}

// spawn changes what is wanted of an instance and starts a supervisor for it,
// unless change says that none is wanted.
func (d *Driver) spawn(at folder, change func(*wish, state) bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	w, s, err := at.intent()
	if err != nil {
		d.log.Error("a file of an instance is damaged; it is written anew", "instance", at.id(), "err", err)
	}
	if !change(&w, s) {
		return nil
	}
	if err := save(at, wishFile, w); err != nil {
		return fmt.Errorf("write what is wanted: %w", err)
	}
	command := d.supervisor
	if len(command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		command = []string{self, "supervise"}
	}
	words, err := os.OpenFile(at.path(lastWords), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open file for what the supervisor says: %w", err)
	}
	defer words.Close()
	cmd := exec.Command(command[0], append(append([]string(nil), command[1:]...), string(at))...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + usualPath}
	cmd.Stdout, cmd.Stderr = words, words
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start supervisor: %w", err)
	}
	d.children[cmd.Process.Pid] = true
	return cmd.Process.Release()
}

// begun waits until a supervisor has said how the first start went.
func (d *Driver) begun(ctx context.Context, at folder, run string) error {
	ctx, cancel := context.WithTimeout(ctx, begin)
	defer cancel()
	s, err := state{}, error(nil)
	if err := until(ctx, func() bool {
		s, err = load[state](at, stateFile)
		return err == nil && s.Run == run && s.Phase != ""
	}); err != nil {
		words, _ := os.ReadFile(at.path(lastWords))
		return fmt.Errorf("the supervisor of the instance has not told how the start went: %s: %w",
			strings.TrimSpace(api.Cut(string(words), 1000)), err)
	}
	if s.Fault != "" {
		return errors.New(s.Fault)
	}
	return nil
}

// until looks again and again until done, or ctx ends.
func until(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Stop asks an instance to end, kills it when it does not, and has it stay so
// until Start, whatever its policy.
func (d *Driver) Stop(ctx context.Context, id string) error {
	at, err := d.mustFind(id)
	if err != nil {
		return err
	}
	return d.silence(ctx, at, syscall.SIGTERM)
}

// silence ends an instance by a signal to its supervisor.
func (d *Driver) silence(ctx context.Context, at folder, by syscall.Signal) error {
	if err := d.change(at, func(w *wish) { w.Up, w.Held = false, true }); err != nil {
		return err
	}
	patient, cancel := context.WithTimeout(ctx, grace+5*time.Second)
	defer cancel()
	err := d.end(patient, at, by)
	if err != nil && ctx.Err() == nil { // the supervisor itself hangs
		err = d.end(ctx, at, syscall.SIGKILL)
	}
	if err != nil {
		return err
	}
	if err := hunt(ctx, at.id()); err != nil {
		return fmt.Errorf("end what the program started: %w", err)
	}
	return nil
}

// end signals a supervisor until it is gone: one that takes hold of its lock
// at the moment cannot be reached yet.
func (d *Driver) end(ctx context.Context, at folder, by syscall.Signal) error {
	told := 0
	err := until(ctx, func() bool {
		d.reap()
		alive, err := at.alive()
		if err != nil || !alive {
			return err == nil
		}
		if told%50 == 0 { // once a second, in case it did not hear
			_ = at.signal(by)
		}
		told++
		return false
	})
	if err != nil {
		return fmt.Errorf("wait for the end of instance %s: %w", at.id(), err)
	}
	return nil
}

// change rewrites what is wanted of an instance.
func (d *Driver) change(at folder, how func(*wish)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	w, _, err := at.intent()
	before := w
	if how(&w); w == before && err == nil {
		return nil
	}
	if err := save(at, wishFile, w); err != nil {
		return fmt.Errorf("write what is wanted: %w", err)
	}
	return nil
}

// SetRestart changes the restart policy of an instance, which may be running.
func (d *Driver) SetRestart(id string, r Restart) error {
	at, err := d.mustFind(id)
	if err != nil {
		return err
	}
	return d.change(at, func(w *wish) { w.Restart = r })
}

// reap lets go of supervisors that have ended. Those of an earlier process of
// the agent are init's.
func (d *Driver) reap() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for pid := range d.children {
		if got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); got == pid || errors.Is(err, syscall.ECHILD) {
			delete(d.children, pid)
		}
	}
}
