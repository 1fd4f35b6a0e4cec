package process

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// kernel is what runs programs here.
func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "linux"
	}
	return "linux " + strings.TrimSpace(string(release))
}

// seclude keeps what this process inherited from the programs it starts:
// descriptors, and ways to more privileges. It holds for the calling thread,
// which must be the one that starts them.
func seclude() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	// Kernels before 5.11 cannot; there the agent's own care must do.
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	return nil
}

// dieWithParent has a program die with the thread that starts it.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// settle makes all that was written on the disk of dir durable.
func settle(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.Syncfs(int(file.Fd())); err != nil {
		return fmt.Errorf("sync disk of %s: %w", dir, err)
	}
	return nil
}

// hunt kills all that belongs to an instance, wherever it went: what has left
// its group or lost its supervisor shows by its environment.
func hunt(ctx context.Context, id string) error {
	return until(ctx, func() bool {
		prey := belonging(id)
		for _, pid := range prey {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
		}
		return len(prey) == 0
	})
}

func belonging(id string) (pids []int) {
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil
	}
	mark := []byte("\x00" + marker + "=" + id + "\x00")
	for _, path := range paths {
		env, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(append([]byte{0}, env...), mark) {
			continue // gone, or another user's
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
