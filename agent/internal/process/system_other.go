//go:build !linux

package process

import (
	"context"
	"runtime"
	"syscall"
)

// kernel is what runs programs here.
func kernel() string { return runtime.GOOS }

// seclude does nothing: what this process inherited is closed in programs by
// the way they are started.
func seclude() error { return nil }

// dieWithParent does nothing where the system cannot do it.
func dieWithParent(*syscall.SysProcAttr) {}

// settle leaves it to the system when what was written becomes durable.
func settle(string) error { return nil }

// hunt finds nobody: only the program's group is ended here.
func hunt(context.Context, string) error { return nil }
