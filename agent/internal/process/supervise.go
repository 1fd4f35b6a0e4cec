package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// Supervise runs the program of the instance in dir, and starts it again as
// its policy says, until that says no more or the process gets SIGTERM. It
// reports by the instance's files only, and writes to log what goes wrong with
// these. The calling process should do nothing else: it gives up what it
// inherited.
func Supervise(dir string, log *slog.Logger) error {
	runtime.LockOSThread() // a program dies with the thread that started it
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT) // before anybody can send one
	defer signal.Stop(told)
	if err := seclude(); err != nil {
		return fmt.Errorf("give up what was inherited: %w", err)
	}
	at := folder(dir)
	lock, err := at.hold(5 * time.Second)
	if err != nil {
		return err
	}
	defer lock.Close()
	s, err := at.supervisor(told, log)
	if err != nil {
		return err
	}
	if !s.wish.Up {
		return nil // that changed since this process was started
	}
	return s.run()
}

// supervisor looks after one instance.
type supervisor struct {
	at    folder
	spec  spec
	wish  wish // as at the start
	state state
	told  <-chan os.Signal // it must end
	log   *slog.Logger
	book  *logbook
	limit *limiter
	dirty bool // the state on disk is an older one
}

// supervisor reads what there is.
func (f folder) supervisor(told <-chan os.Signal, log *slog.Logger) (*supervisor, error) {
	s := &supervisor{at: f, told: told, log: log}
	var err error
	if s.spec, err = load[spec](f, specFile); err != nil {
		return nil, fmt.Errorf("read what to run: %w", err)
	}
	before := state{}
	if s.wish, before, err = f.intent(); err != nil {
		log.Error("a file of the instance is damaged", "err", err)
	}
	if err := os.Chdir(f.path(rootDir)); err != nil { // see command
		return nil, fmt.Errorf("enter folder of program: %w", err)
	}
	s.state = state{Run: s.wish.Run, StartedAt: before.StartedAt}
	if s.wish.Again {
		s.state.Restarts, s.state.Streak, s.state.Fault = before.Restarts+1, before.Streak, before.Fault
		if before.Phase != living { // else nobody knows how it ended
			s.state.Exit = before.Exit
		}
	}
	return s, nil
}

// run is one life of the program after the other.
func (s *supervisor) run() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := hunt(ctx, s.at.id()); err != nil {
		return fmt.Errorf("end what is left of the program: %w", err)
	}
	s.book = openLog(s.at.path(logDir))
	s.limit, s.state.Notes = limit(s.at.id(), s.spec.Limits)
	defer func() { err = errors.Join(err, s.book.close(), s.limit.close()) }()
	for {
		if s.live() {
			s.state.Phase = stopped
			break
		}
		if !s.another() {
			s.state.Phase = ended
			break
		}
		s.state.Phase = resting
		s.save()
		if s.rest() {
			s.state.Phase = stopped
			break
		}
		s.state.Restarts++
	}
	s.save()
	if s.dirty {
		return errors.New("the last state could not be written")
	}
	return nil
}

// another reports whether the program is to be started again, and counts.
func (s *supervisor) another() bool {
	lived := s.state.Fault == "" && s.state.StartedAt != nil && s.state.Exit != nil && s.state.Exit.At.Sub(*s.state.StartedAt) >= healthy
	if lived {
		s.state.Streak = 0
	}
	s.state.Streak++
	w, err := load[wish](s.at, wishFile)
	if err != nil {
		s.log.Error("what is wanted cannot be read; going on as before", "err", err)
		w = s.wish
	}
	switch {
	case !w.Up || s.gone():
		return false
	case w.Restart == OnFailure:
		return s.state.failed() && s.state.Streak <= mostInARow
	}
	return w.Restart == Always
}

// rest waits before the next life: longer after each that was short. It
// reports whether the supervisor was told to stop.
func (s *supervisor) rest() (told bool) {
	delay := longestPause
	if n := s.state.Streak - 1; n < 6 {
		delay = min(longestPause, time.Second<<n)
	}
	over := time.NewTimer(delay)
	defer over.Stop()
	select {
	case <-over.C:
		return false
	case <-s.told:
		return true
	}
}

// live is one life of the program. It reports whether it ended because the
// supervisor was told to stop.
func (s *supervisor) live() (told bool) {
	p, err := s.start()
	if err != nil {
		s.state.Fault, s.state.Exit, s.state.PID = err.Error(), nil, 0
		return false
	}
	now := time.Now().UTC()
	s.state.Phase, s.state.PID, s.state.StartedAt, s.state.Fault = living, p.cmd.Process.Pid, &now, ""
	s.save()
	look := time.NewTicker(10 * time.Second)
	defer look.Stop()
	for ended := false; !ended; {
		select {
		case <-p.done:
			ended = true
		case <-s.told:
			told = true
			p.end(grace)
		case <-look.C:
			if s.gone() {
				told = true
				p.end(grace)
			} else if s.dirty { // a disk that was full may have room again
				s.save()
			}
		}
	}
	p.clear(s.at.id(), s.log)
	s.state.Exit, s.state.PID = p.exit(s.limit.killed()), 0
	return told
}

// gone reports whether somebody has taken the instance's files away: then
// nobody would ever find it again.
func (s *supervisor) gone() bool {
	_, err := os.Lstat(s.at.path(specFile))
	return errors.Is(err, fs.ErrNotExist)
}

// save makes the state durable. A supervisor that cannot goes on: its program
// matters more.
func (s *supervisor) save() {
	err := save(s.at, stateFile, s.state)
	s.dirty = err != nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Error("state not written", "err", err)
	}
}
