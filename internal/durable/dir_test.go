package durable_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/beckon-fleet/beckon/internal/durable"
	"github.com/beckon-fleet/beckon/internal/durable/durabletest"
)

func TestDirIsMadeOrTightened(t *testing.T) {
	old := filepath.Join(t.TempDir(), "old")
	if err := os.Mkdir(old, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(old, 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(old, "kept"), "")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(old, link); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"new": filepath.Join(t.TempDir(), "a", "b"), "old and open": old, "a link to a folder": link, "again": old,
	} {
		if err := durable.Dir(path); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if got := names(t, old); len(got) != 1 || got[0] != "kept" {
		t.Errorf("the probe was left, or more taken: %v", got)
	}
}

func TestDirSaysWhyNot(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T) (path string)
		want    string
	}{
		"a file": {func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "file")
			put(t, path, "kept")
			return path
		}, "is not a folder: move it away"},
		"below a file": {func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "file")
			put(t, path, "kept")
			return filepath.Join(path, "dir")
		}, "cannot be used"},
		"somebody else's": {foreign, "belongs to user"},
		"read-only":       {readOnly, "cannot be written"},
		"open to others for good": {func(t *testing.T) string {
			dir := durabletest.SmallDisk(t, 64<<10)
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			durabletest.ReadOnly(t, dir)
			return dir
		}, "others may read or write"},
		"a full disk": {func(t *testing.T) string {
			dir := durabletest.SmallDisk(t, 16<<10)
			put(t, filepath.Join(dir, "big"), strings.Repeat("x", 16<<10))
			return dir
		}, "no space left"},
	} {
		t.Run(name, func(t *testing.T) {
			path := c.prepare(t)
			err := durable.Dir(path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("want %q and the path, got %v", c.want, err)
			}
		})
	}
}

// foreign is a folder that belongs to another user, whoever runs the test.
func foreign(t *testing.T) string {
	if os.Geteuid() != 0 {
		return "/usr"
	}
	dir := t.TempDir()
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	return dir
}

// readOnly is a folder of ours that cannot be written. Permissions do not
// hold root back, a read-only disk does.
func readOnly(t *testing.T) string {
	if os.Geteuid() == 0 {
		dir := durabletest.SmallDisk(t, 64<<10)
		durabletest.ReadOnly(t, dir)
		return dir
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	return dir
}
