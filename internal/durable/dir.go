package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const (
	private = 0o700 // what a folder of ours may have
	others  = 0o077 // what it may not
)

// Dir makes path a folder that this program can write and nobody else can
// read, or says in a sentence why it is not one. Call it before anything is
// spent that would be lost with an unwritable folder.
func Dir(path string) error {
	info, err := makeDir(path)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("the folder %s belongs to user %d and this program runs as user %d: run it as that user, or give it the folder with `chown -R %[3]d %[1]s`",
			path, stat.Uid, os.Geteuid())
	}
	if info.Mode()&others != 0 {
		if err := tighten(path); err != nil {
			return err
		}
	}
	return probe(path)
}

func makeDir(path string) (fs.FileInfo, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(path, private); err != nil {
			return nil, fmt.Errorf("the folder %s cannot be made: %w", path, err)
		}
		if err := syncDir(filepath.Dir(path)); err != nil {
			return nil, err
		}
		info, err = os.Stat(path)
	}
	if err != nil {
		return nil, fmt.Errorf("the folder %s cannot be used: %w", path, err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a folder: move it away, or name another folder", path)
	}
	return info, nil
}

// tighten looks again afterwards: some file systems take a chmod and keep
// their own mode.
func tighten(path string) error {
	err := os.Chmod(path, private)
	if info, statErr := os.Stat(path); statErr != nil || info.Mode()&others != 0 {
		return fmt.Errorf("others may read or write the folder %s and that cannot be changed: use a folder on a file system with permissions, mode 0700: %w",
			path, errors.Join(err, statErr, fs.ErrPermission))
	}
	return nil
}

// probe writes a block for real: neither a full disk nor a read-only one is
// told by the permissions.
func probe(path string) error {
	temp, err := writeTemp(path, make([]byte, 4096), 0o600)
	if err == nil {
		err = os.Remove(temp)
	}
	if err != nil {
		return fmt.Errorf("the folder %s cannot be written: %w", path, err)
	}
	return nil
}
