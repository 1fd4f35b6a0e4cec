package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/beckon-fleet/beckon/internal/durable"
)

const (
	rootDir   = "root"
	logDir    = "logs"
	specFile  = "spec.json"
	wishFile  = "wish.json"
	stateFile = "state.json"
	lockFile  = "lock"
	// What a supervisor has to say that fits nowhere else: why it failed.
	lastWords = "supervisor.log"
)

// folder is that of one instance. Its name is the instance's id, and that of
// its parent is the app's.
type folder string

func (f folder) id() string { return filepath.Base(string(f)) }

func (f folder) app() string { return filepath.Base(filepath.Dir(string(f))) }

func (f folder) path(name string) string { return filepath.Join(string(f), name) }

// spec is what to run. It is written once.
type spec struct {
	Name    string            `json:"name"`
	Labels  map[string]string `json:"labels"`
	Command []string          `json:"command"`
	Env     []string          `json:"env"`
	Address string            `json:"address,omitempty"`
	Limits  Limits            `json:"limits,omitzero"`
	Owner   *Owner            `json:"owner,omitempty"` // absent: as the agent itself
	Notes   []string          `json:"notes,omitempty"`
}

// wish is what the agent wants of an instance. The supervisor reads it at its
// start and whenever the program has ended.
type wish struct {
	Run     string  `json:"run,omitempty"`  // which supervisor is meant; a new one for each
	Up      bool    `json:"up"`             // it should run
	Held    bool    `json:"held,omitempty"` // it was stopped on purpose
	Again   bool    `json:"again,omitempty"`
	Restart Restart `json:"restart"`
}

// state is what a supervisor knows of its instance.
type state struct {
	Run       string     `json:"run"` // of the supervisor that wrote it
	Phase     phase      `json:"phase"`
	PID       int        `json:"pid,omitempty"`
	StartedAt *time.Time `json:"started_at,omitempty"`
	Restarts  int        `json:"restarts,omitempty"`
	Streak    int        `json:"streak,omitempty"` // lives in a row that were short
	Exit      *Exit      `json:"exit,omitempty"`
	Fault     string     `json:"fault,omitempty"`
	Notes     []string   `json:"notes,omitempty"`
}

// phase is where a supervisor stands.
type phase string

const (
	living  phase = "living"
	resting phase = "resting" // before it starts the program again
	ended   phase = "ended"   // the policy says that it stays so
	stopped phase = "stopped" // the supervisor was told to stop
)

func load[T any](f folder, name string) (v T, err error) {
	text, err := os.ReadFile(f.path(name))
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, fmt.Errorf("read %s: %w", f.path(name), err)
	}
	return v, nil
}

func save[T any](f folder, name string, v T) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return durable.Write(f.path(name), append(text, '\n'), 0o600)
}

// look puts together what the files say. A damaged wish or state does not
// hide the instance: then nothing is wanted of it, or nobody knows how it
// ended, until the agent or the supervisor writes the file anew.
func (f folder) look() (Process, error) {
	s, err := load[spec](f, specFile)
	if err != nil {
		return Process{}, err
	}
	alive, err := f.alive()
	if err != nil {
		return Process{}, err
	}
	w, st, damage := f.intent() // after alive: what a supervisor wrote last
	if damage != nil {
		s.Notes = append(s.Notes, "damaged: "+damage.Error())
	}
	p := Process{
		ID: f.id(), App: f.app(), Name: s.Name, Labels: s.Labels, State: Ended, Restart: w.Restart, Restarts: st.Restarts,
		Exit: st.Exit, Fault: st.Fault, Notes: append(s.Notes, st.Notes...),
	}
	if st.StartedAt != nil {
		p.StartedAt = *st.StartedAt
	}
	switch {
	case alive && st.Run == w.Run && st.Phase == living:
		p.State, p.PID = Running, st.PID
	case alive:
		p.State = Waiting
	case st.StartedAt == nil && damage == nil:
		p.State = Made
	case wanted(w, st):
		p.State = Waiting // for Keep
	}
	if p.Lost = !alive && p.State != Made && st.Phase != ended && st.Phase != stopped; p.Lost && st.Phase != resting {
		p.Exit = nil
	}
	p.Held = p.State == Ended && w.Held
	return p, nil
}

// intent is what is wanted of an instance and what is known of it. What cannot
// be read is as if nothing had ever been written; the error says so.
func (f folder) intent() (wish, state, error) {
	w, err := load[wish](f, wishFile)
	if err != nil {
		w, err = wish{Restart: Never}, fmt.Errorf("read what is wanted: %w", err)
	}
	s, stateErr := load[state](f, stateFile)
	switch {
	case errors.Is(stateErr, fs.ErrNotExist):
		s = state{}
	case stateErr != nil:
		s, err = state{}, errors.Join(err, fmt.Errorf("read what is known: %w", stateErr))
	}
	return w, s, err
}

// wanted reports whether the instance should have a supervisor.
func wanted(w wish, s state) bool {
	switch {
	case !w.Up:
		return false
	case w.Restart == OnFailure && s.Phase == ended:
		return s.failed() && s.Streak <= mostInARow
	}
	return w.Restart != Never
}

// failed reports whether the last life was no success.
func (s state) failed() bool { return s.Fault != "" || s.Exit == nil || s.Exit.Code != 0 }

// alive reports whether the instance has a supervisor. Ids of processes prove
// nothing, as they are used again; the lock goes with its holder, however
// that ends.
func (f folder) alive() (bool, error) {
	file, err := os.OpenFile(f.path(lockFile), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at lock: %w", err)
	}
	defer file.Close()
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at lock %s: %w", file.Name(), err)
	}
	return false, nil
}

// hold takes the lock for a supervisor, and writes down who that is. Whoever
// only looks holds it for a moment, so it tries for a while.
func (f folder) hold(patience time.Duration) (*os.File, error) {
	file, err := os.OpenFile(f.path(lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(end) {
			break
		}
	}
	if err == nil {
		err = file.Truncate(0)
	}
	if err == nil {
		_, err = file.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("hold lock %s: %w", file.Name(), err), file.Close())
	}
	return file, nil
}

// signal reaches the supervisor and nobody else: the process is pinned before
// the lock says that it still is the one that holds it.
func (f folder) signal(s syscall.Signal) error {
	text, err := os.ReadFile(f.path(lockFile))
	if err != nil {
		return fmt.Errorf("read lock: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil // it takes hold at this moment; the next look knows
	}
	pinned, err := os.FindProcess(pid)
	if err != nil {
		return nil // gone
	}
	defer pinned.Release()
	if alive, err := f.alive(); err != nil || !alive {
		return err
	}
	if err := pinned.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal supervisor: %w", err)
	}
	return nil
}
