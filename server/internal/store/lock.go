package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Lock makes this process the only server of a data folder, until it calls
// release or ends, however it ends. The error says which process has it.
func Lock(dir string) (release func(), err error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock folder: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("another server%s runs on the folder %s: stop it first, or name another folder", holder(file), dir)
	} else if err != nil {
		err = fmt.Errorf("lock folder %s: %w", dir, err)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	// The number only serves the other's message: on a full disk the lock
	// holds without it.
	if file.Truncate(0) == nil {
		file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return func() { file.Close() }, nil
}

// holder is " (process N)", or nothing while the other has not yet said so.
func holder(file *os.File) string {
	text, err := io.ReadAll(io.LimitReader(file, 32))
	if err != nil {
		return ""
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (process %d)", pid)
}
