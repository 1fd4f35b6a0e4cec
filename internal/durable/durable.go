// Package durable keeps small files whole: after a power cut each is there as
// it was or as it was meant to be, never half of either.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// tempPrefix marks what Write had not finished when its process died.
const tempPrefix = ".tmp-"

// Write puts data at path, in place of what was there. Once it returns, a power
// cut changes nothing; if it fails, the old content is untouched.
func Write(path string, data []byte, mode fs.FileMode) error {
	temp, err := writeTemp(filepath.Dir(path), data, mode)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(temp, path); err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(temp)))
	}
	return syncDir(filepath.Dir(path))
}

// writeTemp makes a durable temporary file in dir, or none.
func writeTemp(dir string, data []byte, mode fs.FileMode) (path string, err error) {
	file, err := os.CreateTemp(dir, tempPrefix)
	if err != nil {
		return "", err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Chmod(mode)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return "", errors.Join(err, os.Remove(file.Name()))
	}
	return file.Name(), nil
}

// Sweep removes from dir what died half-written. Call it while nobody writes
// there: at the start, once the folder is locked.
func Sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("sweep folder: %w", err)
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), tempPrefix) || !entry.Type().IsRegular() {
			continue
		}
		if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
			return fmt.Errorf("sweep folder: %w", err)
		}
	}
	return nil
}

// Quarantine moves a damaged file, or whatever stands in its place, to
// <path>.corrupt-<unix> and returns that name. It overwrites no older one.
func Quarantine(path string, now time.Time) (moved string, err error) {
	name := fmt.Sprintf("%s.corrupt-%d", path, now.Unix())
	moved = name
	for n := 2; ; n++ {
		if _, err := os.Lstat(moved); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return "", fmt.Errorf("quarantine file: %w", err)
		}
		moved = fmt.Sprintf("%s-%d", name, n)
	}
	if err := os.Rename(path, moved); err != nil {
		return "", fmt.Errorf("quarantine file: %w", err)
	}
	return moved, syncDir(filepath.Dir(path))
}

// syncDir makes the names in a folder durable. Some network file systems know
// no such request; there it is left to them.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	defer dir.Close()
	err = dir.Sync()
	if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}
