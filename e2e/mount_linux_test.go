package e2e

import "syscall"

// mount puts a disk of 24 MiB at a folder.
func mount(dir string) error {
	return syscall.Mount("beckon-test", dir, "tmpfs", 0, "size=24m,mode=0700")
}
