package process

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Spec is an instance to be made.
type Spec struct {
	App, ID string // letters, digits, - and _
	Name    string
	Labels  map[string]string
	Command []string // run in the instance's folder
	Env     []string // NAME=value, all that it gets but for HOME and PATH
	Address string   // ADDR:PORT that must be free when it starts, "" for none
	Limits  Limits
}

// Limits are what an instance may use; 0 is no limit.
type Limits struct {
	CPUCores float64 `json:"cpu_cores,omitempty"`
	MemBytes int64   `json:"mem_bytes,omitempty"`
}

// The beginnings of the names of folders that are not instances yet, or not
// any more. No app has such a name.
const (
	newPrefix  = ".new-"
	gonePrefix = ".gone-"
)

// Create makes an instance that is restarted by nobody, and does not start
// it. fill puts its files into root, for owner where that is not nil; it has
// workshop for whatever it needs meanwhile. When anything fails, nothing is
// left.
func (d *Driver) Create(ctx context.Context, s Spec, fill func(ctx context.Context, root, workshop string, owner *Owner) error) error {
	if !plain(s.App) || !plain(s.ID) {
		return fmt.Errorf("make instance: %q of app %q is no name for a folder", s.ID, s.App)
	}
	as, err := d.account()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(d.dir, d.mode(as)); err != nil {
		return fmt.Errorf("make folder of instances: %w", err)
	}
	if err := os.Chmod(d.dir, d.mode(as)); err != nil {
		return fmt.Errorf("make folder of instances: %w", err)
	}
	workshop := filepath.Join(d.dir, newPrefix+rand.Text())
	release, err := claim(workshop)
	if err != nil {
		return fmt.Errorf("make folder of instance: %w", err)
	}
	defer release()
	made := folder(filepath.Join(workshop, s.ID))
	if err := d.build(ctx, made, s, as, fill); err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(d.dir, s.App), d.mode(as)), settle(d.dir)); err != nil {
		return fmt.Errorf("make folder of app: %w", err)
	}
	if err := os.Rename(string(made), filepath.Join(d.dir, s.App, s.ID)); err != nil {
		return fmt.Errorf("put instance in place: %w", err)
	}
	return settle(d.dir)
}

// mode is that of folders on the way to a program's own: where it runs as
// another user, that may pass, and see nothing.
func (d *Driver) mode(as account) fs.FileMode {
	if as.owner == nil {
		return 0o700
	}
	return 0o711
}

// claim makes a folder that is not swept while this process is at it. release
// takes away what is left in it.
func claim(path string) (release func(), err error) {
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return func() {
		_ = clear(path) // what is left is swept later
		_ = dir.Close()
	}, nil
}

func (d *Driver) build(ctx context.Context, made folder, s Spec, as account, fill func(context.Context, string, string, *Owner) error) error {
	err := os.Mkdir(string(made), d.mode(as))
	for _, dir := range []string{rootDir, logDir} {
		if err == nil {
			err = os.Mkdir(made.path(dir), 0o700)
		}
	}
	if err == nil {
		err = os.Chmod(string(made), d.mode(as)) // whatever the umask is
	}
	if err != nil {
		return fmt.Errorf("make folder of instance: %w", err)
	}
	if err := fill(ctx, made.path(rootDir), filepath.Dir(string(made)), as.owner); err != nil {
		return err
	}
	if as.owner != nil {
		if err := os.Chown(made.path(rootDir), as.owner.UID, as.owner.GID); err != nil {
			return fmt.Errorf("give folder to user %s: %w", as.name, err)
		}
	}
	err = save(made, specFile, spec{
		Name: s.Name, Labels: s.Labels, Command: s.Command, Env: s.Env, Address: s.Address, Limits: s.Limits,
		Owner: as.owner, Notes: d.notes(as),
	})
	if err == nil {
		err = save(made, wishFile, wish{Restart: Never})
	}
	return err
}

// notes are what a person should know of how programs run here.
func (d *Driver) notes(as account) []string {
	if as.owner == nil {
		return []string{fmt.Sprintf("it runs as %s, the agent's own user: run the agent as root to have it run as %s", as.name, d.user)}
	}
	for dir := d.dir; ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.Mode()&0o001 == 0 {
			return []string{fmt.Sprintf("its user %s may not pass the folder %s: it reaches its own files by relative paths only (chmod o+x %[2]s)", as.name, dir)}
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// Remove takes an instance away with all its files, killing it where it runs.
// One that is not there is removed already.
func (d *Driver) Remove(ctx context.Context, id string) error {
	at, found, err := d.find(id)
	if err != nil || !found {
		return err
	}
	if err := d.silence(ctx, at, syscall.SIGKILL); err != nil {
		return err
	}
	d.mu.Lock()
	delete(d.again, id)
	d.mu.Unlock()
	gone := filepath.Join(d.dir, gonePrefix+rand.Text())
	if err := os.Rename(string(at), gone); err != nil {
		return fmt.Errorf("remove instance: %w", err)
	}
	_ = os.Remove(filepath.Dir(string(at))) // the app's folder, after its last instance
	if err := clear(gone); err != nil {
		return fmt.Errorf("remove files of instance: %w", err)
	}
	return nil
}

// clear removes a folder, also what a program made unwritable in it. Root needs
// no such help, and must not change modes where others can put links.
func clear(path string) error {
	err := os.RemoveAll(path)
	if err == nil || os.Geteuid() == 0 {
		return err
	}
	err = filepath.WalkDir(path, func(path string, e fs.DirEntry, err error) error {
		if e != nil && e.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return err
	})
	return errors.Join(err, os.RemoveAll(path))
}

// sweep removes what died half made or half removed.
func (d *Driver) sweep() error {
	entries, err := os.ReadDir(d.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sweep folder of instances: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), newPrefix) && !strings.HasPrefix(e.Name(), gonePrefix) {
			continue
		}
		path := filepath.Join(d.dir, e.Name())
		dir, err := os.Open(path)
		if err != nil {
			continue // it is being removed
		}
		free := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
		if free {
			err = clear(path)
		}
		if err := errors.Join(err, dir.Close()); err != nil {
			return fmt.Errorf("sweep folder of instances: %w", err)
		}
	}
	return nil
}
