package durable_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/internal/durable"
	"github.com/beckon-fleet/beckon/internal/durable/durabletest"
)

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWriteReplacesWhatWasThere(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, w := range []struct {
		text string
		mode fs.FileMode
	}{{"first", 0o600}, {"", 0o644}, {strings.Repeat("x", 1<<20), 0o640}} {
		if err := durable.Write(path, []byte(w.text), w.mode); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		info, statErr := os.Stat(path)
		if err != nil || statErr != nil || string(got) != w.text || info.Mode() != w.mode {
			t.Errorf("%d bytes, %v; want %d, %v (%v)", len(got), info.Mode(), len(w.text), w.mode, errors.Join(err, statErr))
		}
	}
	if left := names(t, dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestWriteThatFailsLeavesTheOldContent(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T) (path string)
		want    error
	}{
		"no folder": {func(t *testing.T) string { return filepath.Join(t.TempDir(), "none", "file") }, fs.ErrNotExist},
		"a folder in its place": {func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "file")
			if err := os.MkdirAll(filepath.Join(path, "old"), 0o700); err != nil {
				t.Fatal(err)
			}
			return path
		}, syscall.EEXIST},
		"a folder that is a file": {func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "file")
			put(t, path, "old")
			return filepath.Join(path, "file")
		}, syscall.ENOTDIR},
		"a full disk": {func(t *testing.T) string {
			path := filepath.Join(durabletest.SmallDisk(t, 64<<10), "file")
			put(t, path, "old")
			return path
		}, syscall.ENOSPC},
		"a read-only disk": {func(t *testing.T) string {
			dir := durabletest.SmallDisk(t, 64<<10)
			put(t, filepath.Join(dir, "file"), "old")
			durabletest.ReadOnly(t, dir)
			return filepath.Join(dir, "file")
		}, syscall.EROFS},
	} {
		t.Run(name, func(t *testing.T) {
			path := c.prepare(t)
			before, _ := os.ReadFile(path)
			err := durable.Write(path, bytes.Repeat([]byte("x"), 1<<20), 0o600)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("want %v that names the file, got %v", c.want, err)
			}
			after, _ := os.ReadFile(path)
			if !bytes.Equal(before, after) {
				t.Errorf("the old content is gone: %.10q", after)
			}
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".tmp-*")); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestSweepTakesOnlyWhatIsHalfWritten(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".tmp-123", ".tmp-", "file", "file.tmp", "x.tmp-1"} {
		put(t, filepath.Join(dir, name), "")
	}
	if err := os.Mkdir(filepath.Join(dir, ".tmp-folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := durable.Sweep(dir); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(names(t, dir), " "); got != ".tmp-folder file file.tmp x.tmp-1" {
		t.Errorf("there is still: %s", got)
	}
	if err := durable.Sweep(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("want not exist, got %v", err)
	}
}

func TestQuarantineKeepsEverything(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	now := time.Unix(1700000000, 5)
	for i, want := range []string{".corrupt-1700000000", ".corrupt-1700000000-2", ".corrupt-1700000000-3"} {
		if i == 1 { // a folder may stand in a file's place
			if err := os.MkdirAll(filepath.Join(path, "inside"), 0o700); err != nil {
				t.Fatal(err)
			}
		} else {
			put(t, path, want)
		}
		moved, err := durable.Quarantine(path, now)
		if err != nil || moved != path+want {
			t.Fatalf("want %s, got %s, %v", path+want, moved, err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it is still there: %v", err)
		}
	}
	if got, err := os.ReadFile(path + ".corrupt-1700000000"); string(got) != ".corrupt-1700000000" {
		t.Errorf("the first was overwritten: %q, %v", got, err)
	}
	if _, err := durable.Quarantine(path, now); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("want not exist, got %v", err)
	}
}
