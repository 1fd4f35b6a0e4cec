//go:build !linux

package process

import "syscall"

// limiter limits nothing: there are no cgroups here.
type limiter struct{}

// limit says which limits are not enforced: all.
func limit(_ string, limits Limits) (*limiter, []string) {
	if limits == (Limits{}) {
		return &limiter{}, nil
	}
	return &limiter{}, []string{"its limits are not enforced: this system has no cgroups"}
}

func (l *limiter) apply(*syscall.SysProcAttr) bool { return false }

func (l *limiter) release(*syscall.SysProcAttr) {}

func (l *limiter) killed() bool { return false }

func (l *limiter) close() error { return nil }
