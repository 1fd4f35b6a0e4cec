// Package probe reads what a machine is and has. What cannot be read is
// absent, never zero.
package probe

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"github.com/beckon-fleet/beckon/api"
)

// machinePrefix keeps the machine's own id, which other software uses as a
// secret, from being told.
const machinePrefix = "beckon-machine:v1:"

// Capacity is what the node has. dir is on the disk that counts.
func Capacity(dir string) (api.HeartbeatRequest, error) {
	memory, err := memoryBytes()
	if err != nil {
		return api.HeartbeatRequest{}, fmt.Errorf("read memory size: %w", err)
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return api.HeartbeatRequest{}, fmt.Errorf("read disk size of %s: %w", dir, err)
	}
	return api.HeartbeatRequest{
		CPUCores: runtime.NumCPU(), MemBytes: memory, DiskBytes: int64(disk.Blocks) * int64(disk.Bsize),
	}, nil
}

// Hello is what changes rarely.
func Hello() *api.Hello {
	return &api.Hello{
		BootID: text("/proc/sys/kernel/random/boot_id"), Hostname: Hostname(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		Kernel: text("/proc/sys/kernel/osrelease"), Release: &api.Release{Kind: installation()},
	}
}

// Hostname is the machine's, "" where it has none.
func Hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}

// installation tells how the agent was started.
func installation() string {
	switch {
	case os.Getenv("INVOCATION_ID") != "":
		return "systemd"
	case exists("/.dockerenv") || exists("/run/.containerenv"):
		return "container"
	}
	return "manual"
}

// Self is the agent process.
func Self() *api.Self {
	self := &api.Self{Goroutines: runtime.NumGoroutine()}
	// The second number of statm is the resident pages.
	var size, resident int64
	if _, err := fmt.Sscan(text("/proc/self/statm"), &size, &resident); err == nil {
		self.RSSBytes = resident * int64(os.Getpagesize())
	}
	return self
}

// MachineID tells this machine from others without telling its own id; "" where
// it has none that could do so.
func MachineID(root string) string {
	for _, path := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		id := strings.ToLower(text(root + path))
		if usable(id) {
			sum := sha256.Sum256([]byte(machinePrefix + id))
			return hex.EncodeToString(sum[:])
		}
	}
	return ""
}

// usable refuses what many broken machines share: no id, "uninitialized", one
// digit repeated.
func usable(id string) bool {
	raw, err := hex.DecodeString(id)
	return err == nil && len(raw) == 16 && strings.Trim(id, id[:1]) != ""
}

func text(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
