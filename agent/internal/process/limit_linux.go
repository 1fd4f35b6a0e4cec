package process

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// ourGroup is the cgroup above those of all instances. It stands at the top of
// the tree, as those of other software that starts containers by itself.
const ourGroup = "beckon"

// period is that of the CPU quota, in microseconds.
const period = 100_000

// limiter is the cgroup of one instance.
type limiter struct {
	path string // "" where there is none
	dir  *os.File
	ooms int64 // kills that were seen
}

// limit makes the cgroup of an instance, if it has limits. The notes say which
// of them are not enforced, and why.
func limit(id string, limits Limits) (*limiter, []string) {
	return limitIn(unified("/proc/self/mountinfo"), id, limits)
}

// unified is where the cgroup v2 tree is mounted, "" where it is not.
func unified(mounts string) string {
	file, err := os.Open(mounts)
	if err != nil {
		return ""
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		mount, kind, _ := strings.Cut(lines.Text(), " - ")
		if fields := strings.Fields(mount); strings.HasPrefix(kind, "cgroup2 ") && len(fields) > 4 {
			return fields[4]
		}
	}
	return ""
}

func limitIn(top, id string, limits Limits) (l *limiter, notes []string) {
	l = &limiter{}
	if limits == (Limits{}) {
		return l, nil
	}
	path := filepath.Join(top, ourGroup, id)
	failed := errors.New("this machine has no cgroup v2")
	if top != "" {
		failed = os.MkdirAll(path, 0o755)
	}
	enforced := false
	set := func(name, controller, file, value string) {
		err := failed
		if err == nil {
			err = enable(top, controller)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(path, file), []byte(value), 0o644)
		}
		if err != nil {
			notes = append(notes, fmt.Sprintf("its %s limit is not enforced: %v", name, err))
		}
		enforced = enforced || err == nil
	}
	if limits.MemBytes != 0 {
		set("memory", "memory", "memory.max", strconv.FormatInt(limits.MemBytes, 10))
		for file, value := range map[string]string{"memory.swap.max": "0", "memory.oom.group": "1"} {
			_ = write(filepath.Join(path, file), value) // not every kernel has them
		}
	}
	if limits.CPUCores != 0 {
		set("cpu", "cpu", "cpu.max", fmt.Sprintf("%d %d", max(1000, int64(limits.CPUCores*period)), period))
	}
	switch {
	case enforced:
		l.open(path)
	case failed == nil:
		_ = os.Remove(path) // it would be of no use
	}
	return l, notes
}

// enable hands a controller down to the cgroups of instances.
func enable(top, controller string) error {
	for _, dir := range []string{top, filepath.Join(top, ourGroup)} {
		has, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		if err != nil {
			return fmt.Errorf("read controllers of cgroup: %w", err)
		}
		if !slices.Contains(strings.Fields(string(has)), controller) {
			return fmt.Errorf("cgroup v2 has no controller %s here", controller)
		}
		on, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
		if err == nil && slices.Contains(strings.Fields(string(on)), controller) {
			continue
		}
		if err := write(filepath.Join(dir, "cgroup.subtree_control"), "+"+controller); err != nil {
			return fmt.Errorf("switch on controller %s of cgroup: %w", controller, err)
		}
	}
	return nil
}

// write writes to a file that must be there.
func write(path, value string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(value)
	return errors.Join(err, file.Close())
}

func (l *limiter) open(path string) {
	l.path = path
	if dir, err := os.Open(path); err == nil {
		l.dir = dir
	}
	l.ooms = l.events()
}

// apply has a program start in the cgroup.
func (l *limiter) apply(a *syscall.SysProcAttr) bool {
	if l.dir == nil {
		return false
	}
	a.UseCgroupFD, a.CgroupFD = true, int(l.dir.Fd())
	return true
}

// release undoes apply.
func (l *limiter) release(a *syscall.SysProcAttr) { a.UseCgroupFD = false }

// killed reports whether the system has killed for lack of memory since it
// was last asked.
func (l *limiter) killed() bool {
	before := l.ooms
	l.ooms = l.events()
	return l.ooms > before
}

func (l *limiter) events() int64 {
	if l.path == "" {
		return 0
	}
	text, err := os.ReadFile(filepath.Join(l.path, "memory.events"))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if n, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			count, _ := strconv.ParseInt(string(bytes.TrimSpace(n)), 10, 64)
			return count
		}
	}
	return 0
}

// close removes the cgroup.
func (l *limiter) close() error {
	if l.path == "" {
		return nil
	}
	var err error
	if l.dir != nil {
		err = l.dir.Close()
	}
	if gone := os.Remove(l.path); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, fmt.Errorf("remove cgroup: %w", gone))
	}
	return err
}
