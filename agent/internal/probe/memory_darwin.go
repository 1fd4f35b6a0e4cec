package probe

import "golang.org/x/sys/unix"

func memoryBytes() (int64, error) {
	n, err := unix.SysctlUint64("hw.memsize")
	return int64(n), err
}
