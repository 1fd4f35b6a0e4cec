// Package durabletest gives tests disks that fail for real.
package durabletest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// SmallDisk mounts a disk of so many bytes, empty, until the test ends. The
// test is skipped where that is not allowed.
func SmallDisk(t *testing.T, bytes int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d,mode=0700", bytes), "beckon-test", dir).CombinedOutput(); err != nil {
		skip := t.Skipf
		if os.Getenv("BECKON_CI") == "1" {
			skip = t.Fatalf
		}
		skip("a small disk needs root and the right to mount: %v: %s", err, strings.TrimSpace(string(out)))
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("unmount %s: %v: %s", dir, err, out)
		}
	})
	return dir
}

// ReadOnly makes a SmallDisk refuse every write.
func ReadOnly(t *testing.T, dir string) {
	t.Helper()
	if out, err := exec.Command("mount", "-o", "remount,ro", dir).CombinedOutput(); err != nil {
		t.Fatalf("remount %s: %v: %s", dir, err, out)
	}
}
