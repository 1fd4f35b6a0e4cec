package agent

import "syscall"

// alive reports whether a process runs; another user's counts.
func alive(pid int) bool {
	return pid > 0 && syscall.Kill(pid, 0) != syscall.ESRCH
}
