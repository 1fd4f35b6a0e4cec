package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// usualPath is the PATH of a program whose app names none.
const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// marker is the variable by which all that belongs to an instance is found.
const marker = "BECKON_INSTANCE"

// life is one life of a program.
type life struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the program itself has ended
	at   time.Time     // when that was
	logs sync.WaitGroup
	outs []*os.File // our ends of its pipes
}

// start starts the program. Its error is for a person.
func (s *supervisor) start() (*life, error) {
	cmd, err := s.command()
	if err != nil {
		return nil, err
	}
	l := &life{cmd: cmd, done: make(chan struct{})}
	theirs, err := l.pipes()
	if err == nil {
		cmd.Stdout, cmd.Stderr = theirs[0], theirs[1]
		err = s.launch(cmd)
	}
	for _, f := range theirs {
		_ = f.Close() // the program has its own
	}
	if err != nil {
		for _, f := range l.outs {
			_ = f.Close()
		}
		return nil, s.inWords(err)
	}
	for i, stream := range []string{"stdout", "stderr"} {
		l.logs.Go(func() { s.book.copy(stream, l.outs[i]) })
	}
	go func() { // ends with the program, for which the caller waits
		_ = cmd.Wait() // exit reads what became of it
		l.at = time.Now().UTC()
		close(l.done)
	}()
	return l, nil
}

// pipes makes one for each stream, and returns the program's ends.
func (l *life) pipes() (theirs []*os.File, err error) {
	for range 2 {
		r, w, err := os.Pipe()
		if err != nil {
			return theirs, fmt.Errorf("make pipe: %w", err)
		}
		l.outs, theirs = append(l.outs, r), append(theirs, w)
	}
	return theirs, nil
}

// command is the program as the spec has it. It inherits the supervisor's own
// folder, which is root: that also works where its user may not pass the
// folders above.
func (s *supervisor) command() (*exec.Cmd, error) {
	root := s.at.path(rootDir)
	env := append([]string{"HOME=" + root, "PATH=" + usualPath, marker + "=" + s.at.id()}, s.spec.Env...)
	path, err := s.program(root, env)
	if err != nil {
		return nil, err
	}
	attributes := &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(attributes)
	if o := s.spec.Owner; o != nil {
		attributes.Credential = &syscall.Credential{Uid: uint32(o.UID), Gid: uint32(o.GID)} // and no other groups
	}
	return &exec.Cmd{Path: path, Args: s.spec.Command, Env: env, SysProcAttr: attributes}, nil
}

// program finds the file that the first word names: with a slash, from root;
// else in PATH, as a shell does.
func (s *supervisor) program(root string, env []string) (string, error) {
	name := s.spec.Command[0]
	if filepath.IsAbs(name) {
		return name, nil
	}
	if strings.Contains(name, "/") {
		return "./" + filepath.Clean(name), nil
	}
	for _, dir := range filepath.SplitList(value(env, "PATH")) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && filepath.IsAbs(path) && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	if _, err := os.Lstat(filepath.Join(root, name)); err == nil {
		return "", fmt.Errorf("there is no program %s on this node; to run the file of the archive, write ./%[1]s", name)
	}
	return "", fmt.Errorf("there is no program %s, neither on this node (in PATH) nor in the archive (that would be ./%[1]s)", name)
}

// value is that of a variable; the last of a name counts.
func value(env []string, name string) (v string) {
	for _, pair := range env {
		if n, val, _ := strings.Cut(pair, "="); n == name {
			v = val
		}
	}
	return v
}

// launch starts cmd within its limits. Where the system has the limits but
// cannot start anything in them, the program runs without, and that is noted.
func (s *supervisor) launch(cmd *exec.Cmd) error {
	limited := s.limit.apply(cmd.SysProcAttr)
	err := cmd.Start()
	if err == nil || !limited || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	again := &exec.Cmd{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Stdout: cmd.Stdout, Stderr: cmd.Stderr, SysProcAttr: cmd.SysProcAttr}
	s.limit.release(again.SysProcAttr)
	if withoutErr := again.Start(); withoutErr != nil {
		return err
	}
	s.state.Notes = []string{fmt.Sprintf("its limits are not enforced: it could not be started within them: %v", err)}
	*cmd = *again
	return nil
}

// inWords says why the program was not started.
func (s *supervisor) inWords(err error) error {
	cause := err
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		cause = pathError.Err
	}
	name := s.spec.Command[0]
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("start %s: no such file or directory; or it is a script or program whose interpreter is not on this node", name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("start %s: permission denied: is it a program, with mode +x?", name)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("start %s: it is no program for this machine (%w)", name, cause)
	}
	return fmt.Errorf("start %s: %w", name, cause)
}

// end asks the program and all of its group to end, and kills them after
// patience.
func (l *life) end(patience time.Duration) {
	select {
	case <-l.done:
		return // its number may be another's by now
	default:
	}
	group := -l.cmd.Process.Pid
	_ = syscall.Kill(group, syscall.SIGTERM) // it may be gone already
	over := time.NewTimer(patience)
	defer over.Stop()
	select {
	case <-l.done:
	case <-over.C:
		_ = syscall.Kill(group, syscall.SIGKILL)
	}
}

// clear ends what the program has left behind, and its log.
func (l *life) clear(id string, log *slog.Logger) {
	_ = syscall.Kill(-l.cmd.Process.Pid, syscall.SIGKILL) // there may be nobody
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := hunt(ctx, id); err != nil {
		log.Error("what the program has started lives on", "err", err)
	}
	for _, out := range l.outs {
		_ = out.SetReadDeadline(time.Now().Add(2 * time.Second)) // whoever else has the other end
	}
	l.logs.Wait()
	for _, out := range l.outs {
		_ = out.Close()
	}
}

// exit is how the program ended.
func (l *life) exit(oom bool) *Exit {
	e := &Exit{Code: l.cmd.ProcessState.ExitCode(), OOM: oom, At: l.at}
	if status, ok := l.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.Code = 128 + int(status.Signal())
	}
	return e
}
