// Package process runs programs as plain processes of this machine, where
// there is no Docker. It is a thin driver: it knows nothing of apps. Each
// instance is a folder with its files and its log, and a supervisor, which is
// this same program in a session of its own: so that an instance runs on, and
// is told of, whatever becomes of the agent.
//
// A folder holds root/ (the program's own files), spec.json (what to run,
// never changed), wish.json (written by the agent: whether it should run),
// state.json (written by the supervisor: what became of it), logs/ and lock,
// on which the supervisor holds an flock as long as it lives.
package process

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// Config is what a Driver needs to know.
type Config struct {
	// Dir is the folder of all instances; it is made when the first is. Where
	// the agent is root, programs run as another user and must be able to reach
	// their files: its parents should let everybody pass (mode o+x).
	Dir string
	// User is as whom programs run where the agent is root; nobody unless said.
	User string
	// Supervisor is the command line that calls Supervise with the folder that
	// is appended to it; this program and "supervise" unless said.
	Supervisor []string
	Log        *slog.Logger // nowhere unless said
}

// Driver makes, starts and finds instances. There must be one for a folder,
// in one process at a time.
type Driver struct {
	dir        string
	user       string
	supervisor []string
	log        *slog.Logger

	mu       sync.Mutex
	children map[int]bool      // supervisors that this process started and has to reap
	again    map[string]*pause // instances whose supervisors were lost
	swept    bool
}

// New makes a Driver. It touches nothing.
func New(cfg Config) *Driver {
	if whole, err := filepath.Abs(cfg.Dir); err == nil {
		cfg.Dir = whole // supervisors work elsewhere
	}
	d := &Driver{
		dir: cfg.Dir, user: cmp.Or(cfg.User, "nobody"), supervisor: cfg.Supervisor, log: cfg.Log,
		children: map[int]bool{}, again: map[string]*pause{},
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	return d
}

// Folder is where the instances of an agent are unless said: in its state
// folder; and beside that where the agent is root, since the state folder lets
// nobody else pass.
func Folder(state string) string {
	if os.Geteuid() == 0 {
		return filepath.Clean(state) + "-apps"
	}
	return filepath.Join(state, "apps")
}

// State is where an instance stands.
type State string

// The states.
const (
	Made    State = "made"    // never started
	Running State = "running" // its program lives
	Waiting State = "waiting" // its program ended, and will be started again, by its supervisor or by Keep
	Ended   State = "ended"   // nothing of it lives
)

// Restart is the restart policy of an instance.
type Restart string

// The restart policies.
const (
	Never     Restart = "never"
	OnFailure Restart = "on_failure" // at most five times in a row
	Always    Restart = "always"
)

// Exit is how a program ended. A signal shows as code 128 and its number, as
// shells have it.
type Exit struct {
	Code int       `json:"code"`
	OOM  bool      `json:"oom,omitempty"` // killed for using more memory than it may
	At   time.Time `json:"at"`
}

// Process is what is known of an instance.
type Process struct {
	ID, App   string
	Name      string
	Labels    map[string]string
	State     State
	Restart   Restart
	Held      bool      // stopped by Stop, and not started since
	Lost      bool      // its supervisor ended before it: nobody knows how it did
	Restarts  int       // since Start, by supervisors and by Keep
	PID       int       // of the program, 0 while none runs
	StartedAt time.Time // the program; zero when it never was
	Exit      *Exit     // the last; nil when there was none or nobody knows
	Fault     string    // why the program could not be started
	Notes     []string  // what a person should know: limits that are not enforced
}

// Runtime says what runs programs here, and as whom.
func (d *Driver) Runtime() (string, error) {
	account, err := d.account()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s as user %s", kernel(), account.name), nil
}

// List finds the instances of an app, or of all apps when app is "".
func (d *Driver) List(app string) (found []Process, err error) {
	d.reap()
	all, err := d.folders(app)
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	for _, at := range all {
		p, err := at.look()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went away meanwhile
		}
		if err != nil { // one that is damaged does not hide the others
			d.log.Error("an instance cannot be read; deploy its app again and remove the folder", "folder", string(at), "err", err)
			continue
		}
		found = append(found, p)
	}
	return found, nil
}

// folders are those of the instances of an app, or of all apps.
func (d *Driver) folders(app string) (all []folder, err error) {
	apps, err := names(d.dir)
	if err != nil {
		return nil, err
	}
	for _, name := range apps {
		if app != "" && app != name {
			continue
		}
		ids, err := names(filepath.Join(d.dir, name))
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			all = append(all, folder(filepath.Join(d.dir, name, id)))
		}
	}
	return all, nil
}

// names are those of the folders in dir that may be an app's or an instance's.
func names(dir string) (all []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if e.IsDir() && plain(e.Name()) {
			all = append(all, e.Name())
		}
	}
	return all, err
}

// Look finds one instance.
func (d *Driver) Look(id string) (p Process, found bool, err error) {
	d.reap()
	at, found, err := d.find(id)
	if err != nil || !found {
		return Process{}, false, err
	}
	p, err = at.look()
	if errors.Is(err, fs.ErrNotExist) {
		return Process{}, false, nil
	}
	if err != nil {
		return Process{}, false, fmt.Errorf("look at instance %s: %w", id, err)
	}
	return p, true, nil
}

// find is the folder of an instance.
func (d *Driver) find(id string) (at folder, found bool, err error) {
	all, err := d.folders("")
	if err != nil {
		return "", false, fmt.Errorf("find instance: %w", err)
	}
	for _, at := range all {
		if at.id() == id {
			return at, true, nil
		}
	}
	return "", false, nil
}

// plain reports whether a name is one of a file and of nothing else.
func plain(name string) bool {
	for _, c := range name {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return name != ""
}

// account is as whom programs run.
type account struct {
	name  string
	owner *Owner // nil: as the agent itself
}

// Owner is a user of this machine.
type Owner struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
}

func (d *Driver) account() (account, error) {
	if os.Geteuid() != 0 {
		if self, err := user.Current(); err == nil {
			return account{name: self.Username}, nil
		}
		return account{name: strconv.Itoa(os.Geteuid())}, nil
	}
	other, err := user.Lookup(d.user)
	if err != nil {
		return account{}, fmt.Errorf("programs should run as user %s, which this machine does not have: make it (useradd --system %[1]s)", d.user)
	}
	uid, uidErr := strconv.Atoi(other.Uid)
	gid, gidErr := strconv.Atoi(other.Gid)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return account{}, fmt.Errorf("read ids of user %s: %w", d.user, err)
	}
	return account{d.user, &Owner{uid, gid}}, nil
}
