//go:build !linux

package proc

import "syscall"

// tie does nothing where the system cannot do it.
func tie(*syscall.SysProcAttr) {}
